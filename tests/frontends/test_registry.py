"""The registry of estimators, against the documentation and the libraries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sklearn.utils import all_estimators

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.registry import ESTIMATORS
from hbtvm.frontends.supported import REFUSED

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/models.md").read_text()


def test_the_documented_table_is_the_registry() -> None:
    table = dict(re.findall(r"^\| (.+?) \| (.+) \|$", PAGE, re.MULTILINE))
    sections: dict[str, set[str]] = {}
    for (_, name), how in ESTIMATORS.items():
        if not name.startswith("_"):
            sections.setdefault(how.section, set()).add(name)
    for section, names in sections.items():
        assert set(table[section].partition(" (")[0].split(", ")) == names, section
    assert {name for name in table if name.startswith("…")} <= {*sections}


def test_scikit_learn_has_no_class_that_is_neither_supported_nor_refused() -> None:
    refused = PAGE.partition("## Refused by name")[2].partition("\n[")[0]
    for name, kind in all_estimators():
        if hasattr(kind, "predict") or hasattr(kind, "transform"):
            known = ("sklearn", name) in ESTIMATORS
            assert known != bool(re.search(rf"\b{name}\b", refused)), name


@pytest.mark.parametrize(("name", "reason"), REFUSED["sklearn"].items())
def test_refused_classes_say_why(name: str, reason: str) -> None:
    record = Record(Global("sklearn.any", name))
    with pytest.raises(UnsupportedModel, match=f"sklearn's {name} is not supported: {reason}"):
        registry.read(record)
    record = Record(Global("sklearn.pipeline", "Pipeline"))
    record.attributes["steps"] = [("only", Record(Global("sklearn.any", name)))]
    with pytest.raises(UnsupportedModel, match=f"which is not supported: {reason}"):
        registry.read(record)


def test_every_class_is_read_in_some_way() -> None:
    for key, how in ESTIMATORS.items():
        assert how.model or how.predicts or how.transforms or how.last, key
        assert how.section, key
