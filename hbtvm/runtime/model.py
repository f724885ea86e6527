"""`Model`: a loaded package that predicts."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm import checks
from hbtvm.errors import InputError, MissingPackageError
from hbtvm.graph.outputs import output_columns
from hbtvm.runtime.cuda.driver import device_index
from hbtvm.runtime.device import device_of
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.host import OUTPUTS, HostModel, Output
from hbtvm.runtime.package.file import Package, Source, Trust, from_bytes, read, to_bytes, write
from hbtvm.runtime.package.summary import size_in_words, summarize
from hbtvm.runtime.recursive.front import DeviceFront, RecursiveFront
from hbtvm.runtime.rows.inputs import Inputs
from hbtvm.runtime.rows.sparse import SparseRows, is_sparse, refuse_sparse
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.threads import ThreadPool
from hbtvm.runtime.transforms.selection import Selection, sparse_rows
from hbtvm.runtime.transforms.transformer import Transformer
from hbtvm.runtime.unreadable import reading

if TYPE_CHECKING:
    from hbtvm.runtime.cuda.model import DeviceModel
    from hbtvm.runtime.cuda.rows.arrays import ArrayLibrary

# What runs on GPUs is imported when a package for one is loaded: it brings `tvm_ffi`, which takes most of a
# second, and more where torch is installed.

_BLOCK = 1 << 19
"""Dense values that are there at a time, where they become sparse rows."""

_TRANSFORMS_AS_IT_PREDICTS = ("IsotonicRegression",)
"""Classes whose two methods are the same."""

_KEEPS_TYPE = ("Binarizer",)
"""Classes that by themselves make integers of integers."""


class Model:
    """A compiled model that predicts as its library does.

    It may be used from several threads at once, forked, copied and pickled.

    Attributes
    ----------
    package
        The package that it was loaded from.
    threads
        Most threads that work on one call.
    device
        The GPU that it runs on, such as ``"cuda:0"``; ``"cpu"`` if it was compiled for a CPU.
    beside
        What the model transforms by, where it predicts and the library also has a ``transform``; else None.
    scores
        What gives a transformer's ``score_samples``, where it has that; else None.
    """

    def __init__(self, package: Package, threads: int | None = None, device: str | int | None = None) -> None:
        self.package = package
        self.device = device_of(package, device)
        self.threads = _threads(package, threads)
        self._asked = None if threads is None else self.threads
        forest = package.forest
        self._output = out = package.output
        self._convert: dict[Output | None, Callable[..., Any]] = {name: out.maker(name) for name in OUTPUTS}
        self._pool = ThreadPool(self.threads) if self.threads > 1 else None
        self._texts = library = TextLibrary(package.text_library, self._pool, package.target)
        self._inputs = reader_of(package, package.row_dtypes, library)
        # Whether there are kernels that take no missing values.
        self._transforms = package.transforms
        self._columns = {
            np.dtype(one): output_columns.columns(out.label_dtype, one, out.keeps_axis)
            for one in ("float32", "float64")
        }
        self._transformer = Transformer(package, library) if package.parts.table is not None else None
        self._selection = Selection(package.input, out.selects) if out.selects else None
        self._base = np.array(forest["base_score"], np.float64)
        # From rows to outputs, without anything of Python between; filled in when the code is loaded.
        self._calls: dict[Output | None, Callable[[Any], Any]] = {}
        self._transform_call: Callable[[Any], Any] | None = None
        self._host: HostModel | None = None
        self._front: RecursiveFront | DeviceFront | None = None
        self._on_device: DeviceModel | None = None
        self.beside = None if package.transform is None else Model(package.transform, threads, device)
        self.scores = None if package.scores is None else Model(package.scores, threads, device)

    @classmethod
    def from_package(
        cls, package: Package, threads: int | None = None, device: str | int | None = None
    ) -> Model:
        """Return the model of a package in memory; parameters as for `load`.

        The code is loaded at the first prediction, so the package may be for another machine.
        """
        return cls(package, threads, device)

    def predict(self, X: Any, output: Output | None = None) -> Any:
        """Predict.

        Parameters
        ----------
        X
            Shape (n, n_features), n >= 1: a numpy array of any numeric type, a pandas, polars or
            pyarrow table, lists of lists, a dict of one row's values by column name or a list of such dicts,
            or a sparse matrix or array of scipy (absent entries are missing to XGBoost's models, zero to
            others); for a model on a GPU also an array there of torch, CuPy or any library that speaks
            DLPack, which is read where it is: torch's and CuPy's in the current stream, in which they have to
            be ready (see `hbtvm.runtime.cuda.model.DeviceModel.predict`). A pipeline's columns may be in any
            order, among others. For a recursive model,
            `hbtvm.runtime.recursive.structures.Structures`.
        output
            What to return: class labels, probabilities, raw scores, the decision function or
            anomaly scores, as the library does; None for what its ``predict`` returns.

        Returns
        -------
        Array, shape (n,) or (n, outputs), as from the library; a list of arrays for the
        probabilities of several targets. Rows on a GPU give an array there: torch's and CuPy's their
        own, in the caller's stream and mostly without waiting for it; others a `tvm_ffi.Tensor`, which any
        library takes over by DLPack (see `hbtvm.runtime.cuda.model.DeviceModel.predict`).

        Raises
        ------
        InputError
            If the rows don't fit the model, or it has no such output.
        DeviceError
            If the GPU has too little memory, or fails.
        """
        try:
            call = self._calls.get(output)
        except TypeError:  # it has no hash
            call = None
        if call is not None:
            found = call(X)
            if found is not None:
                return found
        return self._predict(X, output)

    def _predict(self, X: Any, output: Output | None) -> Any:
        """As `predict`, of anything."""
        if self.scores is not None and output == "score":
            return self.scores.predict(X, output)
        if self._transforms:
            raise InputError(f"{self.package.model} does not predict; its output is that of transform.")
        if not (output is None or type(output) is str) or output not in self._convert:
            names = ", ".join(name for name in OUTPUTS if name)
            raise InputError(f"output is {output!r}; expected None or one of {names}.")
        if self.package.recursion is not None:
            return self._predict_structures(X, output)
        if self.device != "cpu":
            from hbtvm.runtime.cuda.rows.libraries import library_of

            library = library_of(X)
            if library is not None:
                return self._predict_on_device(library, X, output)
            if self._on_device is not None:
                self._on_device.check_process()
        self._require(output)
        if type(X) is not np.ndarray and is_sparse(X):
            return self._finished(np.concatenate([raw for _, raw in self._raw_of_sparse(X)]), output)
        rows = self._prepared(X)
        if self._host is None:
            self.warm_up()
        host = self._host
        if host is not None and output in host.prepared:
            found = host.prepared[output](rows)
            if found is not None:
                return found
        return self._finished(self._raw(rows), output)

    def _predict_structures(self, structures: Any, output: Output | None) -> Any:
        """As `predict`, of a recursive model; its readout where there are no layers behind."""
        self._require(output)
        self.warm_up()
        assert self._front is not None
        rows = self._front.rows(structures)
        if not self.package.kernels:
            return rows if output is None else self._finished(rows.astype(np.float64), output)
        call = None if self._host is None else self._host.direct.get(output)
        found = None if call is None else call(rows)
        return self._finished(self._raw(self._inputs.prepare(rows)), output) if found is None else found

    def _finished(self, raw: np.ndarray, output: Output | None) -> Any:
        """An output of raw scores."""
        found = None if self._host is None else self._host.finish(output, raw)
        return self._convert[output](raw) if found is None else found

    def _require(self, output: Output | None) -> None:
        """Raise an error that names the outputs there are, if this is none, before any row is computed."""
        if output is not None and output not in self._output.outputs:
            self._convert[output](self._base[None])

    def _raw_of_sparse(self, X: Any) -> Iterator[tuple[np.dtype, np.ndarray]]:
        """Raw scores of sparse rows of scipy, a tile of dense rows at a time, and the type of the rows."""
        package, inputs = self.package, self._inputs
        refusal = None if package.steps else refuse_sparse(package.library, package.model)
        if refusal is not None:
            raise InputError(refusal)
        with reading(X):
            if isinstance(inputs, FeedReader):
                # In front of a pipeline absent entries are zeros, whatever they are to its last step.
                # The library makes float64 of integers, also of those that float32 holds.
                sparse = SparseRows(inputs.plain, X, "", wide=True)
            else:
                sparse = SparseRows(inputs, X, package.library)
        if not len(sparse):
            raise InputError("expected at least one row, got none.")
        for _, rows in sparse.tiles():
            read = inputs.prepare(rows) if isinstance(inputs, FeedReader) else rows
            yield read.dtype, self._raw(read)

    def _prepared(self, X: Any) -> np.ndarray:
        with reading(X):
            rows = self._inputs.prepare(X)
        if not len(rows):
            raise InputError("expected at least one row, got none.")
        return rows

    def _predict_on_device(self, library: ArrayLibrary, X: Any, output: Output | None) -> Any:
        """Predict for rows on a GPU."""
        from hbtvm.runtime.cuda.rows.inputs import MatrixInputs

        self.warm_up()
        assert self._on_device is not None
        self._on_device.check_process()
        self._require(output)
        inputs = MatrixInputs(self._inputs) if isinstance(self._inputs, FeedReader) else self._inputs
        return self._on_device.predict(library, library.read(X), inputs, output)

    def transform(self, X: Any) -> Any:
        """Return the columns that a pipeline makes whose last step transforms.

        Parameters
        ----------
        X
            As for `predict`.

        Returns
        -------
        Shape (n, columns), of a ``LabelEncoder`` (n,): an array, a sparse matrix of scipy (CSR) where the
        library gives one, or a data frame of pandas or polars where the pipeline was told to give one
        (``set_output``).

        Of a pipeline that predicts, what the library's ``transform`` gives beside: the distances to a
        ``KMeans``' centres, a ``LinearDiscriminantAnalysis``' projection. Of an ONNX graph that gives
        numbers, what `predict` returns: nothing in a file says which of the two it does.

        Raises
        ------
        InputError
            If the rows don't fit the pipeline, or it only predicts.
        MissingPackageError
            If the library of the result is not installed.
        """
        if self._transform_call is not None:
            found = self._transform_call(X)
            if found is not None:
                return found
        found = self._transform(X)
        if self.package.model in _KEEPS_TYPE and not self.package.steps:
            plain = self._inputs.plain if isinstance(self._inputs, FeedReader) else self._inputs
            dtype = X.dtype if is_sparse(X) else plain.numbers(X).dtype
            return found.astype(dtype) if dtype.kind in "iub" else found
        return found

    def _transform(self, X: Any) -> Any:
        """As `transform`, of anything."""
        if not self._transforms:
            out = self._output
            alone = out.kind == "regressor" or (out.kind == "classifier" and out.outputs == ("label",))
            if (alone and self.package.library == "onnx") or self.package.model in _TRANSFORMS_AS_IT_PREDICTS:
                return self.predict(X)
            if self.beside is not None:
                return self.beside.transform(X)
            raise InputError(
                f"{self.package.model} predicts; expected a pipeline whose last step transforms."
            )
        if self._selection is not None:
            with reading(X):
                return self._selection.transform(X)
        container, sparse = self._output.container, type(X) is not np.ndarray and is_sparse(X)
        if self._transformer is not None:
            with reading(X):
                found = self._transformer.transform(X)
            if self._output.label_dtype == "int64":
                return (found if self._output.keeps_axis else found[:, 0]).astype(np.int64)
            if sparse and container == "rows" and isinstance(found, np.ndarray):
                return sparse_rows([found], X)
            return found
        if sparse:
            tiles = (self._columns[dtype](raw) for dtype, raw in self._raw_of_sparse(X))
            if container == "array":
                return np.concatenate(list(tiles))
            return sparse_rows(tiles, X if container == "rows" else None)
        rows = self._prepared(X)
        if container == "sparse":
            count = max(1, _BLOCK // self._output.n_outputs)
            blocks = (rows[start : start + count] for start in range(0, len(rows), count))
            return sparse_rows((self._columns[one.dtype](self._raw(one)) for one in blocks), None)
        if self._host is None:
            self.warm_up()
        if self._host is not None and self._host.transform_prepared is not None:
            columns = self._host.transform_prepared(rows)
            if columns is not None:
                return columns
        return self._columns[rows.dtype](self._raw(rows))

    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities; as ``predict(X, "proba")``."""
        return self.predict(X, "proba")

    def decision_function(self, X: Any) -> Any:
        """Return the decision function; as ``predict(X, "decision")``."""
        return self.predict(X, "decision")

    def score_samples(self, X: Any) -> Any:
        """Return anomaly scores; as ``predict(X, "score")``."""
        return self.predict(X, "score")

    def warm_up(self) -> None:
        """Load the code now rather than with the first prediction.

        Raises
        ------
        PackageError
            If this machine can't run it.
        """
        self._texts.check()
        if self._front is None and self.package.recursion is not None:
            self._front = (
                RecursiveFront(self.package, self._asked)
                if self.device == "cpu"
                else DeviceFront(self.package, device_index(self.device))
            )
        if self._host is not None or self._on_device is not None or not self.package.kernels:
            return
        if self.device != "cpu":
            try:
                importlib.import_module("tvm_ffi")
            except ImportError as error:
                raise MissingPackageError(
                    "predicting on a GPU needs tvm_ffi, which is not installed: pip install 'hbtvm[cuda]'",
                    name="tvm_ffi",
                ) from error
            from hbtvm.runtime.cuda.model import DeviceModel

            self._on_device = DeviceModel(self.package, device_index(self.device))
            if self._front is None and not self._transforms:
                # (Of the model itself, which they would keep until garbage is collected, they hold nothing.)
                prepare, look = self._inputs.prepare, self._inputs.look if self._inputs.checks else None
                self._calls = {
                    output: self._on_device.plain_call(prepare, self._convert[output], look)
                    for output in (None, *self._output.outputs)
                }
            return
        host = HostModel(self.package, self._inputs, self._asked)
        if self._front is None:
            self._calls = host.direct
            self._transform_call = None if self._output.container == "sparse" else host.transform
        self._host = host

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model's package.

        Raises
        ------
        PackageFileError
            If it can't be written; what was at `path` before is still there then.
        """
        write(self.package, checks.path("path", path))

    def summary(self) -> str:
        """Return a text of several lines about the model, its machine and its kernels."""
        return summarize(self.package, self.threads)

    def example(self, output: Output | None = None) -> Any:
        """What `predict` returns for some row, or `transform` of a pipeline that does not predict.

        Its type and shape are those of all rows; no row is computed. Of a table that numpy makes, numbers
        stand for whatever is in its columns.
        """
        spec, table = self._output, self.package.parts.table
        if table is not None:
            return np.zeros((1, len(table.columns)))
        raw = np.zeros((1, spec.n_outputs))
        return self._columns[np.dtype("float64")](raw) if self._transforms else self._convert[output](raw)

    @property
    def pipeline(self) -> FeedReader | None:
        """What reads the rows of a pipeline; None for a bare model."""
        if self._transformer is not None:
            return self._transformer.reader
        return self._inputs if isinstance(self._inputs, FeedReader) else None

    @property
    def n_features_in_(self) -> int:
        """Columns of the input."""
        return self.package.input.n_features

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Column names, where the model was trained with names."""
        if self.package.input.feature_names is None:
            raise AttributeError("the model was trained without feature names")
        return np.array(self.package.input.feature_names, dtype=object)

    @property
    def classes_(self) -> Any:
        """Class labels; a list of arrays if there are several targets."""
        classes = self._output.classes
        if not classes:
            raise AttributeError(f"this {self._output.kind} has no class labels")
        return classes[0] if len(classes) == 1 else list(classes)

    def __repr__(self) -> str:
        package = self.package
        return f"<hbtvm.Model: {package.library} {package.model}, {size_in_words(package)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (to_bytes(self.package), self._asked, self.device)

    def _raw(self, rows: np.ndarray) -> np.ndarray:
        self.warm_up()
        if self._host is not None:
            return self._host.raw(rows)
        assert self._on_device is not None
        return self._on_device.scores(rows, self._inputs.look if self._inputs.checks else None)


def load(
    path: Source,
    threads: int | None = None,
    device: str | int | None = None,
    *,
    sha256: str | None = None,
    allowed_signers: str | os.PathLike[str] | None = None,
    signature: str | os.PathLike[str] | None = None,
) -> Model:
    """Load a compiled model. A package holds machine code: load only what you trust.

    Parameters
    ----------
    path
        The `.tar`: its path, its content as bytes, or a file that was opened with mode ``"rb"``.
    threads
        Threads that may work on one call. None for as many as it was tuned for, but no more
        than the CPUs that this process may use.
    device
        The GPU to run on, such as ``"cuda:1"``, of a model that was compiled for GPUs; by default the first.
    sha256
        The hash that the whole file has to have, 64 hexadecimal digits.
    allowed_signers
        A file of keys in the format of ``ssh-keygen`` (ALLOWED SIGNERS in its manual). The package has to be
        signed by one of them: ``ssh-keygen -Y sign -n hbtvm -f KEY model.tar``.
    signature
        The file of the signature, by default `path` with ``.sig``.

    Raises
    ------
    PackageError
        If the package is damaged or newer than this hbtvm, this machine can't run it, it has another hash, or
        no allowed signer's signature that can be verified here.
    PackageNotFoundError, PackageFileError
        If there is no such file, or it can't be read; both are `PackageError` and `OSError`.
    InputError
        If `threads` is no whole number of at least 1, `path` is nothing that holds a package, or `sha256` is
        not a hash.
    DeviceError
        If there is no such device, or it has too little memory.
    """
    trust = Trust(sha256, allowed_signers, signature)
    model = Model(read(path, trust), threads, device)
    model.warm_up()
    return model


def _from_bytes(data: bytes, threads: int | None, device: str | None = None) -> Model:
    return Model(from_bytes(data), threads, device)


def reader_of(package: Package, dtypes: Collection[str], library: TextLibrary) -> Inputs | FeedReader:
    """What reads the rows of a package, in types for which there are kernels."""
    compare_dtype = "float64" if package.stages else package.forest["compare_dtype"]
    feeds = package.parts.feeds
    if feeds:
        return FeedReader(package.input, feeds, compare_dtype, dtypes, package.rows_apart, library)
    return Inputs(package.input, compare_dtype, dtypes or ("float64",), package.rows_apart)


def _threads(package: Package, threads: int | None) -> int:
    if threads is None:
        each = [kernel.threads for kernel in package.all_kernels]
        if package.recursion is not None:
            each += [kernels.threads for kernels in package.recursion.kernels]
        tuned = max(each, default=1)
        return max(1, min(tuned, len(os.sched_getaffinity(0))))
    return checks.whole("threads", threads, 1, 2, checks.MOST_THREADS)
