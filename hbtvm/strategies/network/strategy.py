"""`Fused`: a whole network as one kernel, row tile by row tile."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cpu import network as network_cpu
from hbtvm.schedules.network.plan import plan
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import NetworkWorkload, Workload, family_of
from hbtvm.strategies.network.base import NetworkStrategy
from hbtvm.strategies.network.expressions import Expressions
from hbtvm.strategies.network.layout import arguments_of, laid_out
from hbtvm.strategies.network.operand import FAMILIES, NetworkOperand
from hbtvm.strategies.scores import unaligned_rows


class Fused(NetworkStrategy):
    """Supports any network: one function for all operators, intermediate values in the cache."""

    name = "fused"
    schedule = network_cpu
    operation_time = 0.06

    def refuse(self, workload: Workload) -> str | None:
        return None if family_of(workload) in FAMILIES else f"{self.name} holds networks of operators alone"

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        return arguments_of(plan(cast(NetworkWorkload, workload), config))

    def tables(self, operand: NetworkOperand, config: Config) -> dict[str, np.ndarray]:
        kernel_plan = plan(cast(NetworkWorkload, operand.workload(1)), config)
        return laid_out(kernel_plan, operand.tables, arguments_of(kernel_plan))

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
