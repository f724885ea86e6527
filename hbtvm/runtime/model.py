"""`Model`: a loaded package that predicts."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm import checks
from hbtvm.errors import InputError
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.device import device_of
from hbtvm.runtime.estimator import Estimator
from hbtvm.runtime.explaining.method import Explainable
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.host import OUTPUTS, Output
from hbtvm.runtime.kernels import Kernels
from hbtvm.runtime.package.file import Package, Source, Trust, from_bytes, read, to_bytes, write
from hbtvm.runtime.package.summary import size_in_words, summarize
from hbtvm.runtime.python_steps import in_words, methods_of, parts_of, trusted
from hbtvm.runtime.rows.sparse import is_sparse
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.threads import ThreadPool, threads_of
from hbtvm.runtime.transforms.columns import TransformedColumns

if TYPE_CHECKING:
    from hbtvm.comparison.result import Comparison


class Model(Explainable, Estimator):
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
        For a model that predicts and also has a ``transform``, the model of that; else None.
    scores
        The model of a transformer's ``score_samples``; else None.
    """

    def __init__(self, package: Package, threads: int | None = None, device: str | int | None = None) -> None:
        self.package = package
        self.device = device_of(package, device)
        self.threads = threads_of(package.threads, threads)
        self._asked = None if threads is None else self.threads
        self._output, self._outputs = package.output, frozenset(package.output.outputs)
        self._convert: dict[Output | None, Callable[..., Any]] = {
            name: partial(self._output.compute, name) for name in OUTPUTS
        }
        self._pool = ThreadPool(self.threads) if self.threads > 1 else None
        texts = TextLibrary(package.text_library, self._pool, package.target)
        self._kernels = Kernels(package, self.device, self._asked, texts, self._convert)
        self._columns = TransformedColumns(package, self._kernels, texts) if package.transforms else None
        self._base = np.array(package.forest["base_score"], np.float64)
        self._calls = self._kernels.calls  # run no Python in between; empty until the code is loaded
        self._transform_call: Callable[[Any], Any] | None = None
        self.beside = None if package.transform is None else Model(package.transform, threads, device)
        self.scores = None if package.scores is None else Model(package.scores, threads, device)
        self.views = {name: Model(view, threads, device) for name, view in package.views.items()}
        self._parts = [Model(part, threads, device) for part in parts_of(package)]
        if self._parts:  # beside Python steps
            self._calls, self._transform_call = methods_of(package.python, self._parts, OUTPUTS)

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
            others); for a model on a GPU also an array there of torch, CuPy or any library that supports
            DLPack, which is read in place: torch's and CuPy's in the current stream, in which they must
            be ready (see `hbtvm.runtime.cuda.model.DeviceModel.predict`). A pipeline's columns may be in any
            order, among others. For a recursive model,
            `hbtvm.runtime.recursive.structures.Structures`.
        output
            Class labels, probabilities, raw scores, the decision function or anomaly scores, as the library
            returns them; None for the output of its ``predict``.

        Returns
        -------
        Array, shape (n,) or (n, outputs), as from the library; a list of arrays for the
        probabilities of several targets. Rows on a GPU give an array there: of torch or CuPy for their
        arrays, in the caller's stream and mostly without waiting; else a `tvm_ffi.Tensor`, which any library
        adopts by DLPack (see `hbtvm.runtime.cuda.model.DeviceModel.predict`).

        Raises
        ------
        InputError
            If the rows don't fit the model, or it has no such output.
        DeviceError
            If the GPU has too little memory, or fails.
        """
        try:
            call = self._calls.get(output)
        except TypeError:  # it is unhashable
            call = None
        if call is not None:
            result = call(X)
            if result is not None:
                return result
        return self._predict(X, output)

    def _predict(self, X: Any, output: Output | None) -> Any:
        """Predict any input."""
        if self.scores is not None and output == "score":
            return self.scores.predict(X, output)
        if self._columns is not None:
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
                self._require(output)
                return self._kernels.predict_on_device(library, X, output)
            if self._kernels.on_device is not None:
                self._kernels.on_device.check_process()
        self._require(output)
        kernels = self._kernels
        if type(X) is not np.ndarray and is_sparse(X):
            return self._finished(np.concatenate([raw for _, raw in kernels.raw_of_sparse(X)]), output)
        result = kernels.in_blocks(X, output)
        if result is not None:
            return result
        rows = kernels.prepared(X)
        if kernels.host is None:
            kernels.warm_up()
        call = None if kernels.host is None else kernels.host.prepared.get(output)
        result = None if call is None else call(rows)
        return self._finished(kernels.raw(rows), output) if result is None else result

    def _predict_structures(self, structures: Any, output: Output | None) -> Any:
        """Predict structures; without layers behind it, the readout is the result."""
        self._require(output)
        kernels = self._kernels
        kernels.warm_up()
        assert kernels.front is not None
        rows = kernels.front.rows(structures)
        if not self.package.kernels:
            return rows if output is None else self._finished(rows.astype(np.float64), output)
        call = None if kernels.host is None else kernels.host.direct.get(output)
        result = None if call is None else call(rows)
        return self._finished(kernels.raw(kernels.inputs.prepare(rows)), output) if result is None else result

    def _finished(self, raw: np.ndarray, output: Output | None) -> Any:
        """Return an output of raw scores."""
        host = self._kernels.host
        result = None if host is None else host.finish(output, raw)
        return self._convert[output](raw) if result is None else result

    def _require(self, output: Output | None) -> None:
        """Raise an error that names the existing outputs if this is not one of them."""
        if output is not None and output not in self._outputs:
            self._convert[output](self._base[None])

    def transform(self, X: Any) -> Any:
        """Return the columns of a pipeline whose last step transforms.

        Parameters
        ----------
        X
            As for `predict`.

        Returns
        -------
        Shape (n, columns), of a ``LabelEncoder`` (n,): an array, a sparse matrix of scipy (CSR) where the
        library returns one, or a data frame of pandas or polars if the pipeline is set to return one
        (``set_output``).

        For a pipeline that predicts, the result of the library's ``transform``: the distances to a
        ``KMeans``' centres, a ``LinearDiscriminantAnalysis``' projection. For an ONNX graph that returns
        numbers, the result of `predict`: a file does not say whether it predicts or transforms.

        Raises
        ------
        InputError
            If the rows don't fit the pipeline, or it only predicts.
        MissingPackageError
            If the library of the result is not installed.
        """
        if self._transform_call is not None:
            result = self._transform_call(X)
            if result is not None:
                return result
        return self._transform(X)

    def _transform(self, X: Any) -> Any:
        """Transform any input."""
        if self._columns is not None:
            columns = self._columns.transform(X)
            self._transform_call = self._kernels.transform_call
            return columns
        package, out = self.package, self._output
        alone = out.kind == "regressor" or (out.kind == "classifier" and out.outputs == ("label",))
        if (alone and package.library == "onnx") or package.transform_predicts:
            return self.predict(X)
        if self.beside is not None:
            return self.beside.transform(X)
        raise InputError(f"{package.model} predicts; expected a pipeline whose last step transforms.")

    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities; as ``predict(X, "proba")``."""
        return self.predict(X, "proba")

    def decision_function(self, X: Any) -> Any:
        """Return the decision function; as ``predict(X, "decision")``."""
        return self.predict(X, "decision")

    def score_samples(self, X: Any) -> Any:
        """Return anomaly scores; as ``predict(X, "score")``."""
        return self.predict(X, "score")

    def compare(self, model: Any, X: Any, *, trust: bool = False) -> Comparison:
        """Compare this model with its library: answers row by row, and times in turns.

        Parameters
        ----------
        model
            The trained model, or the path of its file, which the library then loads in a process of its own.
        X
            Rows that both take.
        trust
            Whether a pickle may be loaded, which can run any program.

        Returns
        -------
        The comparison, which prints as tables (also in notebooks).

        Raises
        ------
        InputError
            If the library or this model refuses the rows, or a pickle is not trusted.
        HbtvmError
            If the library's process crashes or hangs.
        """
        from hbtvm.comparison.compare import compare

        return compare(self, model, X, trust=trust)

    def warm_up(self) -> None:
        """Load the code now rather than at the first prediction.

        Raises
        ------
        PackageError
            If this machine can't run it.
        """
        for part in self._parts:
            part.warm_up()
        if not self._parts:
            self._kernels.warm_up()
            self._transform_call = self._kernels.transform_call

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model's package.

        Raises
        ------
        PackageFileError
            If it can't be written; `path` is then unchanged.
        """
        write(self.package, checks.path("path", path))

    def summary(self) -> str:
        """Return a description of the model, its machine and its kernels in several lines."""
        return summarize(self.package, self.threads)

    def example(self, output: Output | None = None) -> Any:
        """Return an example of `predict`'s result for a row, or of `transform`'s if it does not predict.

        It has the type and shape of any row's result, but is not computed. For a table that numpy computes,
        numbers stand for its columns' values.
        """
        columns, n = self._columns, self._output.n_outputs
        return self._convert[output](np.zeros((1, n))) if columns is None else columns.example(n)

    @property
    def pipeline(self) -> FeedReader | None:
        """The reader of a pipeline's rows; None for a bare model. Raises `InputError` with Python steps."""
        if self._parts:
            raise InputError(
                f"{in_words(self.package.python)} runs in Python: pass rows to predict or transform."
            )
        return self._kernels.pipeline if self._columns is None else self._columns.pipeline

    @property
    def n_features_in_(self) -> int:
        """Number of the input's columns."""
        return self._input.n_features

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Column names, if the model was trained with names."""
        if self._input.feature_names is None:
            raise AttributeError("the model was trained without feature names")
        return np.array(self._input.feature_names, dtype=object)

    @property
    def _input(self) -> InputSpec:
        if len(self._parts) == 1:
            raise AttributeError("a Python step reads the rows, so their columns are unknown")
        return self._parts[0]._input if self._parts else self.package.input

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


def load(
    path: Source,
    threads: int | None = None,
    device: str | int | None = None,
    *,
    sha256: str | None = None,
    allowed_signers: str | os.PathLike[str] | None = None,
    signature: str | os.PathLike[str] | None = None,
    trust: bool = False,
) -> Model:
    """Load a compiled model. A package holds machine code: load only what you trust.

    Parameters
    ----------
    path
        The `.tar`: its path, its content as bytes, or a file that was opened with mode ``"rb"``.
    threads
        Most threads of a call. None for the number that it was tuned for, but no more than the CPUs that this
        process may use.
    device
        For a model compiled for GPUs, the GPU to run on, such as ``"cuda:1"``; by default the first.
    sha256
        The required hash of the whole file, 64 hexadecimal digits.
    allowed_signers
        A file of keys in the format of ``ssh-keygen`` (ALLOWED SIGNERS in its manual), one of which must have
        signed the package: ``ssh-keygen -Y sign -n hbtvm -f KEY model.tar``.
    signature
        The signature's file, by default `path` with ``.sig``.
    trust
        Whether Python steps (``python_steps="keep"``), which can run any program, are imported; else refused.

    Raises
    ------
    PackageError
        If the package is damaged or newer than this hbtvm, this machine can't run it, or its hash or
        signature is not the required one.
    PackageNotFoundError, PackageFileError
        If there is no such file, or it can't be read; both are `PackageError` and `OSError`.
    InputError
        If `threads` is not a whole number of at least 1, `path` is not a package's source, or `sha256` is not
        a hash.
    DeviceError
        If there is no such device, or it has too little memory.
    """
    package = read(path, Trust(sha256, allowed_signers, signature))
    model = Model(trusted(package) if trust else package, threads, device)
    model.warm_up()
    return model


def _from_bytes(data: bytes, threads: int | None, device: str | None = None) -> Model:
    return Model(trusted(from_bytes(data)), threads, device)  # unpickling can run any program already
