"""A package's kernels on this machine's CPU, run by the native executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.runtime.cpu import check_cpu
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.native.description import Described, Stage
from hbtvm.runtime.native.epilogues.epilogue import Epilogue, fields_of
from hbtvm.runtime.native.epilogues.select import epilogue_of, epilogue_of_columns
from hbtvm.runtime.native.executor import Executor, Shape
from hbtvm.runtime.native.frames import FrameReader, Frames
from hbtvm.runtime.native.library import Function, load_kernels, load_library
from hbtvm.runtime.package.file import KernelEntry, Package
from hbtvm.runtime.rows.inputs import Inputs

Call = Callable[[Any], Any]
"""From rows to results; None for rows that kernels refuse, or can't read without conversion."""

_Shapes = Shape | dict[np.dtype, Shape]  # of results: of any rows, or by the rows' type

Output = Literal["label", "proba", "raw", "decision", "score"]

OUTPUTS: tuple[Output | None, ...] = (None, *get_args(Output))
"""None is the output of ``predict``."""

_KINDS = {name: np.dtype(name) for name in ("float32", "float64")}


class HostModel:
    """An opened package on a CPU.

    Parameters
    ----------
    package
        A package for a CPU, with kernels.
    inputs
        The reader of its rows.
    threads
        Most threads of a call; None for the number that it was tuned for.

    Raises
    ------
    PackageError
        If this machine can't run it.

    Attributes
    ----------
    direct
        By output (see `hbtvm.runtime.model.Model.predict`): functions from the caller's arrays and frames.
    prepared
        By output: functions from rows that `inputs` prepared.
    transform, transform_prepared
        The same for a transformer's columns.
    """

    def __init__(self, package: Package, inputs: Inputs | FeedReader, threads: int | None) -> None:
        check_cpu(package.target)
        library = load_library(package.executor)
        inputs.interleave = library.interleave
        if isinstance(inputs, FeedReader):
            inputs.counters.use(library.counters)
        functions = load_kernels([kernel.library for kernel in package.all_kernels])
        stages = stages_of(package, functions)
        self._inputs, self._rows = inputs, tuple(_KINDS[name] for name in package.row_dtypes)
        self._executor = Executor(library, stages, described(package, inputs), threads or 0)
        try:
            self._executor.check()
        except ValueError as error:
            raise PackageError(f"the package is damaged: {error}.") from None
        raw = Shape(_KINDS["float64"], stages[-1].outputs)
        self._raw = self._function(raw)
        self.direct: dict[Any, Call] = {}
        self.prepared: dict[Any, Call] = {}
        self._epilogues: dict[Any, tuple[Epilogue, Shape]] = {}
        self.transform: Call | None = None
        self.transform_prepared: Call | None = None
        self._frames = Frames(package, inputs) if library.reads_frames else None
        self._package = package
        self._bind()

    def steps(self, n: int, dtype: Any = np.float32) -> list[tuple[int, int, int, int]]:
        """The plan of a call; see `hbtvm.runtime.native.executor.Executor.steps`."""
        return self._executor.steps(n, dtype)

    def raw(self, rows: np.ndarray) -> np.ndarray:
        """Return raw scores.

        Parameters
        ----------
        rows
            Rows that `inputs` prepared.

        Returns
        -------
        float64, shape (n, outputs).

        Raises
        ------
        InputError
            If there are values that the library refuses.
        """
        raw = self._raw(rows)
        if raw is None:
            self.refuse(rows)
        scores: np.ndarray = raw
        return scores

    def finish(self, output: Any, raw: np.ndarray) -> Any:
        """Return an output of raw scores; None if numpy has to compute it."""
        entry = self._epilogues.get(output)
        if entry is None:
            return None
        epilogue, shape = entry
        results = self._executor.finish(shape, raw.copy())
        return None if results is None else epilogue.output(results)

    def refuse(self, rows: np.ndarray) -> None:
        """Raise the error for rows without results.

        Raises
        ------
        InputError
            If there are values that the library refuses.
        MemoryError
            If there is no memory for the results.
        """
        self._inputs.check(rows)
        raise MemoryError(f"there is no memory for the results of {len(rows)} rows.")

    def learn(self, X: Any) -> bool:
        """Learn from rows that Python has read; return whether `direct` and `transform` are now others."""
        if self._frames is None or not self._frames.learn(X):
            return False
        self._bind()
        return True

    def _bind(self) -> None:
        ready = tuple(dtype for dtype in self._rows if dtype in self._inputs.ready)
        frames = None if self._frames is None else self._frames.reader
        # From a shape to a function of the caller's rows; None without rows that it could read.
        direct = partial(self._function, ready=ready, frames=frames) if ready or frames else None
        if self._package.transforms:
            self._bind_columns(self._package.output, direct)
        else:
            self.direct.clear()
            self._bind_outputs(self._package.output, direct)

    def _bind_outputs(self, spec: OutputSpec, direct: Callable[[_Shapes], Call] | None) -> None:
        for output in OUTPUTS:
            epilogue = epilogue_of(spec, output, n_outputs=self._executor.outputs)
            if epilogue is None:
                continue
            shape = _shape(epilogue)
            self._epilogues[output] = epilogue, shape
            self.prepared[output] = _finished(self._function(shape), epilogue)
            if direct is not None:
                self.direct[output] = _finished(direct(shape), epilogue)
        if spec.kind == "anomaly" and spec.predicts_labels and spec.hangs_on_power("index"):
            self._bind_decisions(spec, direct)

    def _bind_decisions(self, spec: OutputSpec, direct: Callable[[_Shapes], Call] | None) -> None:
        """Bind decisions, and labels by their signs, except for rows that the last bit of a power decides."""
        epilogue = epilogue_of(spec, "decision", n_outputs=self._executor.outputs, exported=True)
        if epilogue is None:
            return
        shape = _shape(epilogue)
        for calls, bind in ((self.prepared, self._function), (self.direct, direct)):
            if bind is not None:
                decide = _decided(bind(shape))
                calls["decision"] = decide
                calls[None] = calls["label"] = _signs(decide)

    def _bind_columns(self, spec: OutputSpec, direct: Callable[[_Shapes], Call] | None) -> None:
        outputs = self._executor.outputs
        shapes = {
            dtype: _shape(epilogue_of_columns(spec.label_dtype, dtype.name, outputs, spec.keeps_axis))
            for dtype in self._rows
        }
        self.transform_prepared = self._function(shapes)
        self.transform = None if direct is None else direct(shapes)

    def _function(
        self, shapes: _Shapes, ready: Sequence[np.dtype] | None = None, frames: FrameReader | None = None
    ) -> Call:
        by_type = shapes if isinstance(shapes, dict) else dict.fromkeys(self._rows, shapes)
        return self._executor.function(by_type, self._rows if ready is None else ready, frames)


_NEAR = 1e-9  # decisions closer to 0 are numpy's, whose power may have other last bits than C's


def _decided(call: Call) -> Call:
    """Return `call` for decisions that are not near 0; the result's is None if any is."""

    def decide(rows: Any) -> Any:
        decisions = call(rows)
        near = decisions is None or (np.abs(decisions) < _NEAR).any()
        return None if near else decisions

    return decide


def _signs(decide: Call) -> Call:
    """Return the function from rows to the labels -1 and 1, by the signs of decisions."""

    def labels(rows: Any) -> Any:
        decisions = decide(rows)
        return None if decisions is None else np.where(decisions < 0, -1, 1)

    return labels


def _shape(epilogue: Epilogue) -> Shape:
    return Shape(epilogue.dtype, 0 if epilogue.flat else epilogue.columns, fields_of(epilogue))


def _finished(call: Call, epilogue: Epilogue) -> Call:
    """Return a function from rows to the output, from one to the epilogue's results."""
    if not epilogue.cuts and not epilogue.lookups:
        return call

    def finished(rows: Any) -> Any:
        results = call(rows)
        return None if results is None else epilogue.output(results)

    return finished


def stages_of(package: Package, functions: Sequence[Function]) -> list[Stage]:
    """Return the stages of a package; `functions` are in the order of `Package.all_kernels`."""
    stages, at = [], 0
    all_stages: list[tuple[Sequence[KernelEntry], Sequence[int]]] = [
        *((stage.kernels, stage.columns) for stage in package.stages),
        (package.kernels, package.columns or range(package.n_read)),
    ]
    for kernels, columns in all_stages:
        pairs = list(zip(kernels, functions[at : at + len(kernels)], strict=True))
        stages.append(Stage(pairs, tuple(columns), kernels[0].signature.outputs))
        at += len(kernels)
    return stages


def described(package: Package, inputs: Inputs | FeedReader) -> Described:
    """Return the executor's parameters of a package, besides kernels; `inputs` reads its rows."""
    forest, output = package.forest, package.output
    telling = _telling(package, output)
    return Described(
        columns=package.n_read,
        base=forest["base_score"],
        divisor=float(forest["divisor"]),
        refuses=inputs.refuses,
        telling=telling,  # type: ignore[arg-type]
        telling_column=output.finite or 0,
    )


def _telling(package: Package, output: OutputSpec) -> str:
    if package.stages:
        return "rows"
    # A network may have a column for that.
    if output.finite is not None:
        return "column"
    # If scores show NaN and infinities, checking them is cheaper than checking the rows.
    return "scores" if all(map(scores_tell, package.kernels)) else "rows"


def scores_tell(entry: KernelEntry) -> bool:
    """Return whether scores are finite only if all of a row's values are.

    True for linear models: every weight, even 0, turns NaN and infinity into a term that is not finite. False
    if NaN is replaced, or a column is a code or is not read.
    """
    tables = {argument.name: argument for argument in entry.signature.tables}
    if entry.strategy != "linear" or "weight" not in tables:
        return False
    reads_all = tables["weight"].shape[0] == entry.signature.n_features
    return reads_all and not {"feature", "filled", "code_feature"} & set(tables)
