"""`NetworkStrategy`: base of the strategies of networks on CPUs, whose kernels store scores by rows."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np

from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_by_row
from hbtvm.schedules.cpu.sharing import with_row_threads
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import NetworkWorkload, Workload
from hbtvm.strategies.base import Strategy
from hbtvm.strategies.network.operand import NetworkOperand


class NetworkStrategy(Strategy):
    """A strategy whose kernels take whole rows of a network, and threads share row tiles."""

    operation_time: ClassVar[float]  # nanoseconds of an operation in a large batch

    def with_sharing(self, config: Config, workload: Workload, target: Any) -> Config:
        space = self.space(workload, target)
        return with_row_threads(config, workload, self.nanoseconds(workload), space)

    def nanoseconds(self, workload: Workload) -> float:
        """Estimate the time of a row of a large batch."""
        return 2.0 + self.operation_time * cast(NetworkWorkload, workload)["operations"]

    def signature(self, workload: Workload, config: Config) -> Signature:
        network, row_tile = cast(NetworkWorkload, workload), int(config["row_tile"])
        rows = rows_argument(network["dtype"], row_tile, network["features"])
        scores = scores_by_row(row_tile, network["outputs"], network.get("scores", "float64"))
        return Signature((rows, *self.arguments(workload, config), scores), 1)

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        """Return the kernel's tables, in argument order."""
        raise NotImplementedError

    def _shared(self, operand: NetworkOperand) -> dict[str, np.ndarray]:
        return {}

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        return {"tiles": -(-workload["rows"] // int(config["row_tile"]))}
