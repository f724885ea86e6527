"""MLflow's flavour ``hbtvm``: save, log and load compiled models, also as ``mlflow.pyfunc``.

It saves the package; loading and predicting need hbtvm and numpy, but no training library.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from importlib import metadata as distributions
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow import pyfunc
from mlflow.models import Model as MLflowModel
from mlflow.models import ModelSignature
from mlflow.models.model import MLMODEL_FILE_NAME
from mlflow.types import schema

from hbtvm import __version__
from hbtvm.errors import InputError
from hbtvm.runtime.explaining.contributions import CONTRIBUTIONS, contribution_names, contributions
from hbtvm.runtime.feeds.file_columns import columns_of
from hbtvm.runtime.model import Model, load

FLAVOR_NAME = "hbtvm"

TRANSFORM = "transform"  # the output of a transformer, or of a pipeline's ``transform``

_PACKAGE = "model.tar"
_REQUIREMENTS = "requirements.txt"
_PYTHON_ENV = "python_env.yaml"
_CONDA_ENV = "conda.yaml"

_MOST_COLUMNS = 1000  # most unnamed columns that a signature lists


def save_model(
    model: Model | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    mlflow_model: Any = None,
    signature: Any = None,
    pip_requirements: Sequence[str] | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Save a compiled model in MLflow's format.

    Parameters
    ----------
    model
        The model, or its package's path.
    path
        The folder to create.
    mlflow_model
        The `mlflow.models.Model` that this flavour is added to; None for a new one.
    signature
        A `mlflow.models.ModelSignature`; by default, the package's columns and its predictions. The
        parameter ``output`` is added to any signature.
    pip_requirements
        Requirements of serving; by default, the installed versions of hbtvm and MLflow.
    metadata
        Kept in the file ``MLmodel``.

    Raises
    ------
    InputError
        If the path exists, or the model takes structures.
    PackageError
        If the package can't be read.
    """
    compiled = model if isinstance(model, Model) else load(model)
    package = compiled.package
    if package.recursion is not None:
        raise InputError("this model takes trees or graphs, for which MLflow has no inputs.")
    if package.python:
        raise InputError(f"{package.python[0]} runs in Python, which packages in MLflow can't.")
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already; expected a folder to make.")
    folder.mkdir(parents=True, exist_ok=True)
    compiled.save(folder / _PACKAGE)
    description = MLflowModel() if mlflow_model is None else mlflow_model
    description.signature = _with_output(_signature(compiled) if signature is None else signature)
    if metadata is not None:
        description.metadata = metadata
    pyfunc.add_to_model(
        description, loader_module=__name__, data=_PACKAGE, conda_env=_CONDA_ENV, python_env=_PYTHON_ENV
    )
    description.add_flavor(
        FLAVOR_NAME,
        hbtvm_version=__version__,
        data=_PACKAGE,
        library=package.library,
        model=package.model,
        target=package.target["kind"],
    )
    description.save(str(folder / MLMODEL_FILE_NAME))
    _write_environments(folder, requirements(compiled) if pip_requirements is None else pip_requirements)


def log_model(
    model: Model | str | os.PathLike[str],
    name: str = "model",
    *,
    registered_model_name: str | None = None,
    signature: Any = None,
    pip_requirements: Sequence[str] | None = None,
    metadata: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Log a compiled model with the current run, or with a new run.

    Parameters
    ----------
    name
        The logged model's name; for MLflow before 3, the folder among the run's artifacts.
    registered_model_name
        The name to register it under.
    more
        Further arguments of `mlflow.models.Model.log`.

    Other parameters, and errors, are those of `save_model`.

    Returns
    -------
    MLflow's ``ModelInfo``, with ``model_uri``.
    """
    named = "name" in inspect.signature(MLflowModel.log).parameters
    return MLflowModel.log(
        **({"artifact_path": None, "name": name} if named else {"artifact_path": name}),
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        model=model,
        signature=signature,
        pip_requirements=pip_requirements,
        metadata=metadata,
        **more,
    )


def load_model(model_uri: str, *, threads: int | None = None, device: str | None = None) -> Model:
    """Load a model that was saved or logged with this flavour.

    Parameters
    ----------
    model_uri
        A folder, ``runs:/<run>/model``, ``models:/<name>/<version>`` or the like.
    threads, device
        As for `hbtvm.load`.

    Raises
    ------
    InputError
        If it has no such flavour.
    PackageError
        As for `hbtvm.load`.
    """
    folder = mlflow.artifacts.download_artifacts(artifact_uri=str(model_uri))
    flavor = MLflowModel.load(folder).flavors.get(FLAVOR_NAME)
    if flavor is None:
        raise InputError(f"{model_uri} has no flavour {FLAVOR_NAME}.")
    return load(Path(folder, flavor["data"]), threads=threads, device=device)


def requirements(model: Model) -> list[str]:
    """Return pip's requirements for predicting with a model through MLflow."""
    installed = "mlflow-skinny"
    for one in ("mlflow", "mlflow-skinny"):
        try:
            distributions.version(one)
        except distributions.PackageNotFoundError:
            continue
        installed = one
        break
    extras = "pandas" if model.device == "cpu" else "cuda,pandas"
    return [f"{installed}=={mlflow.__version__}", f"hbtvm[{extras}]=={__version__}"]


class _Predictor:
    """The model for ``mlflow.pyfunc``."""

    def __init__(self, model: Model) -> None:
        self.model = model
        spec = model.package.input
        self._values = spec.rows_are_values
        self._named = spec.feature_names is not None

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Predict.

        `model_input`: rows as `hbtvm.Model.predict` takes them; texts also as a frame of one column.
        `params`: ``output``: one of ``label``, ``proba``, ``raw``, ``decision``, ``score``, ``transform`` and
            ``contributions``, a frame of Shapley values; by default, the output of the library's ``predict``,
            or ``transform`` if there is none.
        Raises `InputError` if the rows don't fit the model, or it has no such output.
        """
        rows = self._rows(model_input)
        output = (params or {}).get("output")
        if output == TRANSFORM or (output is None and self.model.package.transforms):
            return self.model.transform(rows)
        if output == CONTRIBUTIONS:
            names = contribution_names(self.model)
            return pd.DataFrame(contributions(self.model).predict(rows), columns=names)
        return self.model.predict(rows, output)

    def get_raw_model(self) -> Model:
        """Return the compiled model; MLflow calls this method."""
        return self.model

    def _rows(self, rows: Any) -> Any:
        if isinstance(rows, pd.DataFrame):
            if self._values:
                return rows.iloc[:, 0].tolist()
            if all(isinstance(name, int) for name in rows.columns):
                # MLflow makes frames of arrays, too, and numbers their columns.
                return rows.to_numpy()
        return rows


def _load_pyfunc(path: str) -> _Predictor:
    """Load a package's path for `mlflow.pyfunc.load_model`."""
    return _Predictor(load(path))


def _signature(model: Model) -> Any:
    """Return the signature of a package's columns and predictions."""
    example = np.asarray(model.example())
    dtype = np.dtype(str) if example.dtype.kind in "OU" else example.dtype
    outputs = schema.Schema([schema.TensorSpec(dtype, (-1, *example.shape[1:]))])
    return ModelSignature(inputs=_inputs(model), outputs=outputs)


def _inputs(model: Model) -> Any:
    """Return the columns' schema.

    Columns have any type: MLflow refuses int64 for float64, and pandas' categories for texts.
    """
    spec, reader = model.package.input, model.pipeline
    value = getattr(schema, "AnyType", None)
    if spec.rows_are_values:
        return schema.Schema([schema.ColSpec("string")])
    if value is None:
        return None
    names = spec.feature_names
    if names is None or not (spec.by_name or reader is not None or spec.categories):
        if spec.n_features > _MOST_COLUMNS:
            return None
        return schema.Schema([schema.ColSpec(value()) for _ in range(spec.n_features)])
    read = range(spec.n_features) if reader is None else columns_of(reader).of
    return schema.Schema([schema.ColSpec(value(), names[at]) for at in sorted(set(read))])


def _with_output(signature: Any) -> Any:
    """Add the parameter ``output`` to a signature: MLflow passes declared parameters only."""
    known = [] if signature.params is None else list(signature.params.params)
    if not any(one.name == "output" for one in known):
        known.append(schema.ParamSpec("output", "string", None))
    return ModelSignature(
        inputs=signature.inputs, outputs=signature.outputs, params=schema.ParamSchema(known)
    )


def _write_environments(folder: Path, wanted: Sequence[str]) -> None:
    """Write the files of the environment in which MLflow serves the model."""
    version = ".".join(map(str, sys.version_info[:3]))
    lines = "".join(f"{one}\n" for one in wanted)
    (folder / _REQUIREMENTS).write_text(lines)
    (folder / _PYTHON_ENV).write_text(
        f"python: {version}\nbuild_dependencies:\n- pip\ndependencies:\n- -r {_REQUIREMENTS}\n"
    )
    (folder / _CONDA_ENV).write_text(
        f"channels:\n- conda-forge\ndependencies:\n- python={version}\n- pip\n- pip:\n"
        + "".join(f"  - {one}\n" for one in wanted)
        + "name: mlflow-env\n"
    )
