"""Linear models on CUDA: a thread sums some outputs of some rows (see `hbtvm.strategies.linear`)."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from tvm import te

from hbtvm.runtime.package.signature import GPU_ROW_ALIGNMENT, Argument, rows_argument
from hbtvm.schedules.cuda import linear as linear_cuda
from hbtvm.schedules.cuda.steps import PAIRED
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import LinearWorkload, Workload
from hbtvm.strategies.linear import LinearSum, linear_arguments, linear_function, linear_tables
from hbtvm.strategies.linear_operand import LinearOperand


class CudaLinearSum(LinearSum):
    """Supports any linear model."""

    schedule = linear_cuda

    def default(self, workload: Workload, target: Any) -> Config:
        return self.serial_default(workload, target)

    def ends(self, workload: Workload, config: Config) -> tuple[Argument, Argument, int]:
        _, scores, parts = super().ends(workload, config)
        linear, row_tile = cast(LinearWorkload, workload), int(config["row_tile"])
        return rows_argument(linear["dtype"], row_tile, linear["features"], GPU_ROW_ALIGNMENT), scores, parts

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        linear = cast(LinearWorkload, workload)
        return linear_arguments(linear, linear["outputs"])

    def tables(self, operand: LinearOperand, config: Config) -> dict[str, np.ndarray]:
        return linear_tables(operand, operand.n_outputs)

    def function(self, workload: Workload, config: Config) -> Any:
        staged = config["columns"] == "shared"

        def columns(rows: Any) -> Any:
            tiles, row_tile, features = rows.shape
            if not staged:
                return None
            return te.compute((tiles, features, row_tile), lambda i, f, r: rows[i, r, f], name="columns")

        function = linear_function(
            cast(LinearWorkload, workload),
            int(config["row_tile"]),
            self.arguments(workload, config),
            columns,
            lambda entries, index, o: entries[index, o],
        )
        return function.with_attr(PAIRED, 1)
