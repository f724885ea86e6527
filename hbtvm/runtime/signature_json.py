"""Signatures as plain values, for packages: read strictly, since whatever wrote them may be damaged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, get_args

from hbtvm.runtime.signature import ALIGNMENT, Argument, Contents, Role, Signature, is_whole

_DTYPES = ("float32", "float64", "float16", "int8", "int16", "int32", "int64")


def write(signature: Signature) -> dict[str, Any]:
    """Return plain values from which `read` makes an equal signature."""
    told = [_write_argument(argument) for argument in signature.arguments]
    return {"arguments": told, "groups": signature.groups, "parts": signature.parts}


def read(data: Any) -> Signature:
    """Return the signature that `write` was given.

    Raises
    ------
    ValueError
        If the values make no sense.
    """
    given = _fields(data, {"arguments", "groups", "parts"})
    if not isinstance(given["arguments"], list):
        raise ValueError(f"a kernel's arguments are {given['arguments']!r:.200}")
    for name in ("groups", "parts"):
        if not is_whole(given[name], 1):
            raise ValueError(f"a kernel's {name} is {given[name]!r:.200}")
    return Signature(tuple(map(_read_argument, given["arguments"])), given["groups"], given["parts"])


def _write_argument(argument: Argument) -> dict[str, Any]:
    told: dict[str, Any] = {"role": argument.role, "name": argument.name, "dtype": argument.dtype}
    told |= {"shape": list(argument.shape), "alignment": argument.alignment}
    if argument.contents is not None:
        told["contents"] = {"kind": argument.contents.kind, "bounds": dict(argument.contents.bounds)}
    return told


def _read_argument(data: Any) -> Argument:
    given = dict(_fields(data, {"role", "name", "dtype", "shape", "alignment"}, {"contents"}))
    if given.get("contents") is not None:
        own = _fields(given["contents"], {"kind", "bounds"})
        bounds = own["bounds"]
        if not isinstance(bounds, dict) or not all(is_whole(one, 0) for one in bounds.values()):
            raise ValueError(f"a table's contents are {bounds!r:.200}")
        given["contents"] = Contents(_name(own["kind"], "kind"), bounds)
    if given["role"] not in get_args(Role) or given["dtype"] not in _DTYPES:
        raise ValueError(f"an argument's role is {given['role']!r:.200}, its dtype {given['dtype']!r:.200}")
    shape = given["shape"]
    if not isinstance(shape, list) or not all(is_whole(one, 0) or _is_name(one) for one in shape):
        raise ValueError(f"an argument's shape is {shape!r:.200}")
    if not is_whole(given["alignment"], 1) or given["alignment"] > ALIGNMENT:
        raise ValueError(f"an argument's alignment is {given['alignment']!r:.200}")
    _name(given["name"], "name")
    return Argument(**{**given, "shape": tuple(shape)})


def _fields(data: Any, needed: set[str], more: Collection[str] = ()) -> Mapping[str, Any]:
    if not isinstance(data, dict) or not needed <= set(data) <= needed | set(more):
        raise ValueError(f"expected the fields {', '.join(sorted(needed))}, got {data!r:.200}")
    return data


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier() and len(value) < 40


def _name(value: Any, what: str) -> str:
    if not _is_name(value):
        raise ValueError(f"an argument's {what} is {value!r:.200}")
    text: str = value
    return text
