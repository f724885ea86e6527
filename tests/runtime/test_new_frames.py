"""Frames made for a call: C finds their columns in blocks, before pandas computes where they are."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import hbtvm
from hbtvm.runtime.native import blocks, library
from hbtvm.runtime.native.blocks import block_places, placement_places

RNG = np.random.default_rng(3)
N = 6
VALUES: dict[str, Any] = {
    "a": RNG.normal(size=N), "city": ["Rome", "Oslo", "São Paulo", "北京", "", "Oslo"],
    "b": RNG.normal(size=N), "c": np.arange(N), "kind": list("xyxyyx"), "d": RNG.normal(size=N),
    "e": np.arange(N) * 3,
}  # fmt: skip
NAMES = list(VALUES)
RECORDS = pd.DataFrame(VALUES).to_dict("records")

FORMS: dict[str, Callable[[], Any]] = {
    "columns": lambda: pd.DataFrame(VALUES),
    "records": lambda: pd.DataFrame(RECORDS),
    "a record": lambda: pd.DataFrame(RECORDS[:1]),
    "an index": lambda: pd.DataFrame(RECORDS, columns=NAMES[::-1]),
    "more columns": lambda: pd.DataFrame({"f": [1.0] * N, **VALUES, "g": ["text"] * N, "h": np.arange(N)}),
    "fewer columns": lambda: pd.DataFrame({**VALUES, "f": 1.0}).drop(columns="f"),
    "apart": lambda: pd.concat([pd.DataFrame({name: VALUES[name]}) for name in NAMES], axis=1),
    "dates": lambda: pd.DataFrame({**VALUES, "when": [pd.Timestamp("2026-01-01")] * N}),
}


def fitted() -> Any:
    frame = pd.DataFrame(VALUES)
    numbers = ("n", "passthrough", ["a", "b", "c", "d", "e"])
    texts = ("t", OneHotEncoder(handle_unknown="ignore"), ["city", "kind"])
    return make_pipeline(ColumnTransformer([numbers, texts]), LogisticRegression()).fit(frame, frame["c"] > 2)


@pytest.fixture(scope="module")
def pipe() -> Any:
    return fitted()


@pytest.fixture(scope="module")
def models(pipe: Any) -> Iterator[dict[bool, hbtvm.Model]]:
    """By whether placements are known: a compiled model."""
    places = placement_places()
    assert places is not None
    package = hbtvm.compile(pipe, batch_sizes=20, threads=1).package
    made = {}
    for known in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "placement_places", lambda: places if known else None)  # noqa: B023
            library.load_library.cache_clear()  # a library keeps the places
            made[known] = hbtvm.Model(package, 1)
            for _ in range(2):
                made[known].predict(pd.DataFrame(VALUES))
    yield made
    library.load_library.cache_clear()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_new_frames(pipe: Any, models: dict[bool, hbtvm.Model], form: str, known: bool) -> None:
    model = models[known]
    for _ in range(2):
        model.predict(FORMS[form]())
    rows = FORMS[form]()
    assert rows._mgr._blknos is None
    result = model._calls["proba"](rows)
    # In blocks of other kinds, pandas finds the columns.
    assert (rows._mgr._blknos is None) == (known and form != "dates")
    np.testing.assert_allclose(result, pipe.predict_proba(FORMS[form]()), rtol=1e-6)


def test_other_names(models: dict[bool, hbtvm.Model]) -> None:
    """Names are compared: text by text, not as one text."""
    call = models[True]._calls[None]
    assert call(pd.DataFrame(VALUES)) is not None
    for names in (["a", "cit", "yb", *NAMES[3:]], ["A", *NAMES[1:]], [*NAMES[:-1], "f"], [None, *NAMES[1:]]):
        assert call(pd.DataFrame(dict(zip(names, VALUES.values(), strict=True)))) is None
    assert call(pd.DataFrame(VALUES)[NAMES[1:]]) is None
    assert call(pd.DataFrame(VALUES).assign(f=1)) is None


def test_places_of_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    places = placement_places()
    assert places is not None and block_places() is not None
    for frame in (pd.DataFrame(VALUES), pd.DataFrame(VALUES).iloc[:, 1:5]):
        for block in frame._mgr.blocks:
            placement = block._mgr_locs
            assert ctypes.c_void_p.from_address(id(block) + places.at).value == id(placement)
            parts = {
                ctypes.c_void_p.from_address(id(placement) + at).value for at in (places.slice, places.array)
            }
            assert {id(placement.indexer), id(placement.as_array)} & parts
    placement_places.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "_offset", lambda holder, part: None)
        assert placement_places() is None
    placement_places.cache_clear()
