"""The registry of estimators, against the documentation and the libraries."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
from sklearn.utils import all_estimators

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.registry import ESTIMATORS
from hbtvm.frontends.supported.refused import ELSEWHERE, GROUPS, REFUSED

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGE, REFUSALS = ((DOCS / f"{name}.md").read_text() for name in ("models", "unsupported"))


def test_the_documented_table_is_the_registry() -> None:
    table = dict(re.findall(r"^\| (.+?) \| (.+) \|$", PAGE, re.MULTILINE))
    sections: dict[str, set[str]] = {}
    for (_, name), how in ESTIMATORS.items():
        if not name.startswith("_"):
            sections.setdefault(how.section, set()).add(name)
    for section, names in sections.items():
        assert set(table[section].partition(" (")[0].split(", ")) == names, section
    assert {name for name in table if name.startswith("…")} <= {*sections}


def test_the_documented_refusals_are_the_table_of_refusals() -> None:
    titles = {library: how.section.split(" (")[0] for (library, _), how in ESTIMATORS.items()}
    titles["sklearn"] = "scikit-learn"
    rows = [
        f"| {titles[library]} | {', '.join(names.split())} | {reason} |"
        for library, groups in GROUPS.items()
        for names, reason in groups.items()
    ]
    table = REFUSALS.partition("## Classes\n")[2].partition("\n## ")[0]
    assert [line for line in table.splitlines() if line.startswith("| ")][1:] == rows
    above = REFUSALS.partition("## Classes\n")[0]
    for library, refused in REFUSED.items():
        for name in refused:
            assert (library, name) not in ESTIMATORS
            assert not re.search(rf"\b{name}\b", above) or name == "NGBoost"


PUBLIC = {
    "category_encoders": ["", ".wrapper"],
    "feature_engine": [
        *(".creation", ".datetime", ".discretisation", ".encoding", ".imputation", ".outliers"),
        *(".preprocessing", ".scaling", ".selection", ".text", ".timeseries.forecasting"),
        *(".transformation", ".wrappers"),
    ],
    "skrub": [""],
    "interpret": [".glassbox"],
    "ngboost": [""],
    "quantile_forest": [""],
    "sksurv": [
        *(".ensemble", ".kernels", ".linear_model", ".meta", ".preprocessing", ".svm", ".tree"),
    ],
    "lifelines": [""],
    "pyspark": [f".ml.{name}" for name in ("classification", "clustering", "feature", "fpm", "regression")],
}
"""Modules whose classes people use, by library."""


@pytest.mark.parametrize("library", PUBLIC)
def test_every_class_of_other_libraries_is_supported_or_refused(library: str) -> None:
    pytest.importorskip(library)
    for module in PUBLIC[library]:
        for name, kind in vars(importlib.import_module(library + module)).items():
            own = isinstance(kind, type) and kind.__module__.startswith(library + module)
            if not own or name.startswith(("_", "Java")) or inspect.isabstract(kind):
                continue
            # Estimators of Spark return models; a formula's model and a topic model have folders of others.
            if hasattr(kind, "predict") or hasattr(kind, "transform"):
                known = (library, name) in ESTIMATORS or name in REFUSED.get(library, {})
                assert known or name in ("RFormulaModel", "LDAModel"), name


def test_refused_detectors_exist() -> None:
    """By their source, as importing all detectors takes long."""
    models = pytest.importorskip("pyod.models")
    source = "".join(path.read_text() for path in Path(models.__path__[0]).glob("*.py"))
    detectors = {*re.findall(r"^class (\w+)\(", source, re.MULTILINE)}
    assert {*REFUSED["pyod"]} <= detectors


def test_scikit_learn_has_no_class_that_is_neither_supported_nor_refused() -> None:
    for name, _ in all_estimators():
        assert (("sklearn", name) in ESTIMATORS) != (name in REFUSED["sklearn"]), name


@pytest.mark.parametrize(
    ("library", "name"), [(library, name) for library in REFUSED for name in REFUSED[library]]
)
def test_refused_classes_say_why(library: str, name: str) -> None:
    reason = REFUSED[library][name]
    record = Record(Global(f"{library}.any", name))
    with pytest.raises(UnsupportedModel) as error:
        registry.read(record)
    assert str(error.value) == f"{library}'s {name} is not supported: {reason}."
    record = Record(Global("sklearn.pipeline", "Pipeline"))
    record.attributes["steps"] = [("only", Record(Global(f"{library}.any", name)))]
    with pytest.raises(UnsupportedModel) as error:
        registry.read(record)
    assert f"which is not supported: {reason}." in str(error.value)


@pytest.mark.parametrize("library", ELSEWHERE)
def test_other_libraries(library: str) -> None:
    with pytest.raises(UnsupportedModel) as error:
        registry.read(Record(Global(f"{library}.any", "Model")))
    assert str(error.value).endswith(f"is not a supported model: {ELSEWHERE[library]}.")


def test_every_class_is_read_in_some_way() -> None:
    for key, how in ESTIMATORS.items():
        assert how.model or how.predicts or how.transforms or how.last, key
        assert how.section, key
