"""`Fused`: a whole network as one kernel, row tile by row tile."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_by_row
from hbtvm.schedules.cpu import network as network_cpu
from hbtvm.schedules.cpu.sharing import WORTH_SHARING, balanced
from hbtvm.schedules.network.plan import plan
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import NetworkWorkload, Workload, family_of
from hbtvm.strategies.base import Strategy
from hbtvm.strategies.network.expressions import Expressions
from hbtvm.strategies.network.layout import arguments_of, laid_out
from hbtvm.strategies.network.operand import FAMILIES, NetworkOperand
from hbtvm.strategies.scores import unaligned_rows


class Fused(Strategy):
    """Holds any network: all of its operators in one function, intermediate values in the cache."""

    name = "fused"
    schedule = network_cpu

    def refuse(self, workload: Workload) -> str | None:
        return None if family_of(workload) in FAMILIES else f"{self.name} holds networks of operators alone"

    def with_sharing(self, config: Config, workload: Workload, target: Any) -> Config:
        own = cast(NetworkWorkload, workload)
        if own["threads"] == 1 or own["rows"] == 1:
            return config
        alone: Config = {**config, "parallel": "none", "grain": 1}
        if own["rows"] * self.nanoseconds(workload) < WORTH_SHARING:
            return alone
        return balanced({**alone, "parallel": "rows"}, workload, self.space(workload, target))

    def nanoseconds(self, workload: Workload) -> float:
        """About what a row of a large batch takes."""
        return 2.0 + 0.06 * cast(NetworkWorkload, workload)["operations"]

    def signature(self, workload: Workload, config: Config) -> Signature:
        own, row_tile = cast(NetworkWorkload, workload), int(config["row_tile"])
        rows = rows_argument(own["dtype"], row_tile, own["features"])
        scores = scores_by_row(row_tile, own["outputs"], own.get("scores", "float64"))
        return Signature((rows, *self.arguments(workload, config), scores), 1)

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        return arguments_of(plan(cast(NetworkWorkload, workload), config))

    def _shared(self, operand: NetworkOperand) -> dict[str, np.ndarray]:
        return {}

    def tables(self, operand: NetworkOperand, config: Config) -> dict[str, np.ndarray]:
        made = plan(cast(NetworkWorkload, operand.workload(1)), config)
        return laid_out(made, operand.tables, arguments_of(made))

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        return {"tiles": -(-workload["rows"] // int(config["row_tile"]))}

    def function(self, workload: Workload, config: Config) -> Any:
        own = cast(NetworkWorkload, workload)
        made = plan(own, config)
        expressions = Expressions(
            made, own["dtype"], own["features"], arguments_of(made), own.get("scores", "float64")
        )
        return unaligned_rows(expressions.function())
