"""hbtvm's answers for ONNX files against ONNX Runtime's: ``python -m benchmarks.sweep.onnx``.

Converts the fitted models of ``python -m benchmarks.sweep`` that skl2onnx can convert, with float and double
inputs and with each option that one of their parts has (``zipmap``, ``raw_scores``, ``div``,
``decision_leaf``, ...). Compares `predict`, probabilities or decision function with ONNX Runtime on rows
at the models' thresholds and on their neighbours in the input's type. Ends with status 1 if an answer is
wrong.
"""

from __future__ import annotations

import os

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import argparse  # noqa: E402
import sys  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
from skl2onnx import convert_sklearn  # noqa: E402
from skl2onnx._supported_operators import sklearn_operator_name_map  # noqa: E402
from skl2onnx.common._registration import get_converter  # noqa: E402
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType  # noqa: E402

from benchmarks.sweep import classes, report  # noqa: E402
from benchmarks.sweep.compare import AGREE, REFUSED, WRONG  # noqa: E402
from benchmarks.sweep.edges import edges, parts  # noqa: E402
from benchmarks.sweep.run import Outcome, compile_small, summary  # noqa: E402
from benchmarks.sweep.settings import settings  # noqa: E402
from hbtvm.errors import HbtvmError  # noqa: E402

_TYPES = {"float32": FloatTensorType, "float64": DoubleTensorType}
_TOLERANCE = 2e-5

_VALUES: dict[str, Sequence[Any]] = {
    "zipmap": (False, "columns"),
    "div": ("div", "div_cast"),
    "raw_scores": (True,),
    "nocl": (True,),
    "decision_path": (True,),
    "decision_leaf": (True,),
    "score_samples": (True,),
    "optim": ("cdist",),
    "output_class_labels": (True,),
    "return_std": (True,),
    "cast": (True,),
}
"""Values of converters' options that are tried beside the defaults."""


def options_of(model: Any) -> Iterator[dict[int, dict[str, Any]]]:
    """Yield no options, and each value of each option of a model's parts, for all parts that have it."""
    yield {}
    known: dict[str, list[Any]] = {}
    for part in parts(model):
        alias = sklearn_operator_name_map.get(type(part))
        for option in (get_converter(alias)._options or {}) if alias else {}:
            known.setdefault(option, []).append(part)
    for option, values in _VALUES.items():
        for value in values if option in known else ():
            yield {id(part): {option: value} for part in known[option]}


def rows_of(model: Any, plain: np.ndarray, dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Rows of training, and such with values at which answers change, and their neighbours."""
    rows = [plain.astype(dtype)]
    for column, values in enumerate(edges(model, plain.shape[1], rng)):
        near = values.astype(np.float32).astype(dtype)
        for at in (near, np.nextafter(near, -np.inf, dtype=dtype), np.nextafter(near, np.inf, dtype=dtype)):
            block = plain[rng.integers(len(plain), size=len(at))].astype(dtype)
            block[:, column] = at
            rows.append(block)
    return np.concatenate(rows)


def answers(found: Any, rows: np.ndarray) -> list[Any]:
    """ONNX Runtime's outputs; those by class as matrices."""
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level, session_options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        found.SerializeToString(), session_options, providers=["CPUExecutionProvider"]
    )
    outputs = session.run(None, {session.get_inputs()[0].name: rows})
    return [
        np.array([list(row.values()) for row in one])
        if isinstance(one, list) and isinstance(one[0], dict)
        else one
        for one in outputs
    ]


def differs(compiled: Any, expected: Sequence[Any], rows: np.ndarray) -> str:
    """How a model's answers differ from ONNX Runtime's; empty if they don't."""
    main = np.asarray(compiled.predict(rows))
    available = compiled.package.output.outputs
    name = next((one for one in ("proba", "decision") if one in available), None)
    scores = None
    if name is not None and len(expected) > 1:
        scores = compiled.predict(rows, output=name)
        theirs = expected[1] if np.ndim(expected[1]) != 1 else np.column_stack(list(expected[1:]))
        pairs = zip(scores, theirs, strict=True) if isinstance(scores, list) else [(scores, theirs)]
        for one, other in pairs:
            if isinstance(other, list):
                other = np.concatenate(other, axis=1)
            if not _close(np.asarray(one).reshape(np.shape(other)), np.asarray(other)):
                return f"other {name}"
    wanted = np.asarray(expected[0])
    if wanted.dtype.kind == "f":
        if main.shape != wanted.shape:
            return f"shape {main.shape} for {wanted.shape}"
        return "" if _close(main, wanted) else "other numbers"
    apart = (main.reshape(len(rows), -1).astype(str) != wanted.reshape(len(rows), -1).astype(str)).any(axis=1)
    if isinstance(scores, np.ndarray) and scores.ndim == 2 and scores.shape[1] > 1:
        # Of classes that are equal within rounding, either is right.
        best = np.sort(np.asarray(scores, np.float64), axis=1)
        apart &= best[:, -1] - best[:, -2] > _TOLERANCE * np.maximum(1, np.abs(best[:, -1]))
    return f"other labels in {int(apart.sum())} of {len(rows)} rows" if apart.any() else ""


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return bool(np.allclose(found, expected, _TOLERANCE, _TOLERANCE * scale, equal_nan=True))


def sweep(name: str, seed: int, limit: int) -> Iterator[Outcome]:
    """Yield the outcomes of a class, setting by setting, of those that skl2onnx can convert."""
    for setting in settings(name, seed, limit):
        plain = setting.data.plain
        if plain is None or setting.data.kind not in ("numbers", "positive"):
            continue
        outcome = Outcome(name, seed, setting.title)
        for options in options_of(setting.model):
            for dtype, kind in _TYPES.items():
                chosen = next(iter(options.values()), {})
                if dtype == "float32" and "optim" in chosen:
                    # ONNX Runtime's CDist multiplies out, and in float32 few digits are left of near points.
                    continue
                title = f"{dtype}, {chosen}"
                rng = np.random.default_rng(seed)
                rows = rows_of(setting.model, plain, dtype, rng)
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found = convert_sklearn(
                            setting.model, initial_types=[("X", kind([None, plain.shape[1]]))],
                            target_opset={"": 18, "ai.onnx.ml": 3}, options=options or None,
                        )  # fmt: skip
                        expected = answers(found, rows)
                except Exception:
                    # Not a file that ONNX Runtime runs.
                    continue
                try:
                    reason = differs(compile_small(found), expected, rows)
                except HbtvmError as error:
                    outcome.add(REFUSED, "compile", title, " ".join(str(error).split())[:240])
                except Exception as error:
                    outcome.add(WRONG, "predict", title, f"crash: {type(error).__name__}: {error}"[:240])
                else:
                    outcome.add(WRONG if reason else AGREE, "predict", title, reason)
        if outcome.counts:
            yield outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sweep; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sweep.onnx",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--classes", nargs="+", default=[], metavar="NAME", help="all, if not given")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--limit", type=int, default=3, help="settings of a class and seed")
    arguments = parser.parse_args(argv)
    outcomes: list[Outcome] = []
    for name in arguments.classes or list(classes.classes()):
        for seed in arguments.seeds:
            for outcome in sweep(name, seed, arguments.limit):
                outcomes.append(outcome)
                counts = ", ".join(f"{count} {verdict}" for verdict, count in summary([outcome]).items())
                print(f"{name}, {outcome.setting}: {counts}", file=sys.stderr, flush=True)
    print(report.markdown(outcomes, "# Sweep over ONNX files"))
    return 1 if any(outcome.counts[WRONG] for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
