"""Records in which a value is not what its class has."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import Global, ObjectArray, Record


def holders(value: Any, seen: set[int]) -> Iterator[dict[Any, Any] | list[Any]]:
    """Everything in a record that something can be put into."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Record):
        # pandas' objects hold their values in arguments, or in tuples.
        for one in value.args:
            yield from holders(one, seen)
        yield from holders(value.state if isinstance(value.state, tuple) else value.attributes, seen)
    elif isinstance(value, ObjectArray):
        yield from holders(value.items, seen)
    elif isinstance(value, dict) and value:
        yield value
        for one in value.values():
            yield from holders(one, seen)
    elif isinstance(value, (list, tuple)):
        if isinstance(value, list) and value:
            yield value
        for one in value:
            yield from holders(one, seen)


def junk(choose: random.Random, others: list[Any]) -> Any:
    plain: list[Any] = [
        None,
        True,
        -1,
        0,
        3,
        1 << 40,
        0.5,
        float("nan"),
        float("inf"),
        "x",
        "drop",
        "first",
        b"x",
    ]
    arrays: list[Any] = [
        np.zeros(0),
        np.arange(5),
        np.full(5, -1),
        np.full(5, np.nan),
        np.zeros((2, 5)),
        np.array(["a", "b"]),
        np.array(3.0),
        ObjectArray((2,), ["a", None]),
        ObjectArray((1,), [Global("pandas", "NA")]),
    ]
    made: list[Any] = [
        [],
        {},
        (),
        [1, 2],
        ("a", "b"),
        {"a": 1},
        Global("os", "system"),
        Record(Global("a", "B")),
    ]
    return choose.choice([*plain, *arrays, *made, *others])


def put_junk(value: Any, choose: random.Random, others: bool = True) -> None:
    """Put junk in the place of a random value within `value`.

    `others`: whether another value of the same record may be put there, too.
    """
    places = list(holders(value, set()))
    values = [each for place in places for each in (place.values() if isinstance(place, dict) else place)]
    place = choose.choice(places)
    key = choose.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
    place[key] = junk(choose, values[:50] if others else [])


def is_read(record: Any) -> bool:
    """Return whether a record is read, or refused in a line."""
    try:
        registry.read(record)
    except ModelError as error:
        assert "\n" not in str(error)
        return False
    return True
