"""`Fused`: a whole network as one kernel, row tile by row tile."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_by_row
from hbtvm.schedules.cpu import network as network_cpu
from hbtvm.schedules.cpu.sharing import with_row_threads
from hbtvm.schedules.network.plan import plan
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import NetworkWorkload, Workload, family_of
from hbtvm.strategies.base import Strategy
from hbtvm.strategies.network.expressions import Expressions
from hbtvm.strategies.network.layout import arguments_of, laid_out
from hbtvm.strategies.network.operand import FAMILIES, NetworkOperand
from hbtvm.strategies.scores import unaligned_rows


class Fused(Strategy):
    """Supports any network: one function for all operators, intermediate values in the cache."""

    name = "fused"
    schedule = network_cpu

    def refuse(self, workload: Workload) -> str | None:
        return None if family_of(workload) in FAMILIES else f"{self.name} holds networks of operators alone"

    def with_sharing(self, config: Config, workload: Workload, target: Any) -> Config:
        space = self.space(workload, target)
        return with_row_threads(config, workload, self.nanoseconds(workload), space)

    def nanoseconds(self, workload: Workload) -> float:
        """Estimate the time of a row of a large batch."""
        return 2.0 + 0.06 * cast(NetworkWorkload, workload)["operations"]

    def signature(self, workload: Workload, config: Config) -> Signature:
        network, row_tile = cast(NetworkWorkload, workload), int(config["row_tile"])
        rows = rows_argument(network["dtype"], row_tile, network["features"])
        scores = scores_by_row(row_tile, network["outputs"], network.get("scores", "float64"))
        return Signature((rows, *self.arguments(workload, config), scores), 1)

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        return arguments_of(plan(cast(NetworkWorkload, workload), config))

    def _shared(self, operand: NetworkOperand) -> dict[str, np.ndarray]:
        return {}

    def tables(self, operand: NetworkOperand, config: Config) -> dict[str, np.ndarray]:
        kernel_plan = plan(cast(NetworkWorkload, operand.workload(1)), config)
        return laid_out(kernel_plan, operand.tables, arguments_of(kernel_plan))

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        return {"tiles": -(-workload["rows"] // int(config["row_tile"]))}

    def function(self, workload: Workload, config: Config) -> Any:
        network = cast(NetworkWorkload, workload)
        kernel_plan = plan(network, config)
        expressions = Expressions(
            kernel_plan,
            network["dtype"],
            network["features"],
            arguments_of(kernel_plan),
            network.get("scores", "float64"),
        )
        return unaligned_rows(expressions.function())
