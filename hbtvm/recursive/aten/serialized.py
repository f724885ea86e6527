"""Convert the JSON of a ``.pt2`` file to a `Graph` (schema 8 of ``torch.export``, by torch 2.13)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.graph import DTYPES, Argument, Constant, Graph, Node, Ref, place
from hbtvm.words.printable import shown

SCHEMA = 8  # major version of the supported schema
MOST_NODES = 20_000  # most operators of a graph

_PLAIN = ("as_int", "as_float", "as_bool", "as_string", "as_scalar_type", "as_ints", "as_floats", "as_bools")
_OPAQUE = ("as_device", "as_layout", "as_memory_format", "as_none")


def graph_from(document: Any, constants: Mapping[str, Constant]) -> Graph:
    """Return the graph that a document describes.

    `constants`: by name in the module.
    Raises `ModelError` for other versions, and modules that can't be cells. Raises `KeyError`, `TypeError`,
    `ValueError` if an entry is missing or has a wrong type.
    """
    version = document["schema_version"]["major"]
    if version != SCHEMA:
        raise ModelError(
            f"the .pt2 file is of schema {shown(version)}; this version of hbtvm reads {SCHEMA}, as "
            "torch 2.13 writes it"
        )
    module = document["graph_module"]
    graph, signature = module["graph"], module["signature"]
    if len(graph["nodes"]) > MOST_NODES:
        raise ModelError(f"the module has more than {MOST_NODES} operators")
    arguments: list[Argument] = []
    known: dict[str, Constant] = {}
    for spec in signature["input_specs"]:
        ((kind, content),) = spec.items()
        if kind == "user_input":
            ((form, user_argument),) = content["arg"].items()
            if form != "as_tensor":
                raise ModelError(f"the module has an argument that is not a tensor ({shown(form)})")
            arguments.append(_argument(_text(user_argument["name"]), graph["tensor_values"]))
        elif kind in ("parameter", "buffer", "tensor_constant"):
            name = _text(content[f"{kind}_name"])
            if name not in constants:
                raise ModelError(f"in the .pt2 file, weight {shown(name)!r} is missing")
            known[_text(content["arg"]["name"])] = constants[name]
        else:
            raise ModelError(f"the module has an argument of an unknown kind ({shown(kind)})")
    outputs = []
    for spec in signature["output_specs"]:
        ((kind, content),) = spec.items()
        if kind != "user_output":
            raise ModelError(f"the module changes something beside its results ({shown(kind)})")
        outputs.append(_text(content["arg"]["as_tensor"]["name"]))
    nodes = tuple(_node(entry) for entry in graph["nodes"])
    verifiers = document.get("verifiers", [])
    return Graph(tuple(arguments), known, nodes, tuple(outputs), "TRAINING" not in verifiers)


def _argument(name: str, tensors: Mapping[str, Any]) -> Argument:
    meta = tensors[name]
    sizes = tuple(_size(size) for size in meta["sizes"])
    return Argument(name, sizes, DTYPES.get(meta["dtype"], "unknown"), name)


def _size(entry: Mapping[str, Any]) -> int | str:
    if "as_int" in entry:
        if type(entry["as_int"]) is not int or entry["as_int"] < 0:
            raise ValueError(f"{entry['as_int']!r:.80} is not a size")
        return int(entry["as_int"])
    text = _text(entry["as_expr"]["expr_str"])
    plain = re.fullmatch(r"Symbol\('(\w{1,40})'[^()]*\)", text)
    return plain[1] if plain else text


def _node(entry: Mapping[str, Any]) -> Node:
    target = _text(entry["target"])
    path = target.removeprefix("torch.ops.").removeprefix("_").split(".")
    # Drop the overload of torch's operators.
    op = ".".join(path[:2])
    arguments: dict[str, Any] = {}
    for field in entry["inputs"]:
        name = _text(field["name"])
        if name in arguments or not name.isidentifier():
            raise ValueError(f"an argument is named {name!r:.80}")
        arguments[name] = _value(field["arg"])
    outputs: list[str | None] = []
    single = len(entry["outputs"]) == 1
    for field in entry["outputs"]:
        ((kind, result),) = field.items()
        if kind == "as_tensors":
            single = False
            outputs += [_text(entry["name"]) for entry in result]
        elif kind == "as_tensor":
            outputs.append(_text(result["name"]))
        elif kind == "as_sym_int":
            outputs.append(_text(result["as_name"]) if "as_name" in result else None)
        else:
            outputs.append(None)
    return Node(op, arguments, tuple(outputs), single, place(entry["metadata"].get("stack_trace")))


def _value(entry: Mapping[str, Any]) -> Any:
    ((kind, content),) = entry.items()
    if kind in _PLAIN:
        many = kind in ("as_ints", "as_floats", "as_bools")
        for item in content if many else [content]:
            if type(item) not in (int, float, bool, str):
                raise TypeError(f"{item!r:.80} is not a number")
        return content
    if kind in ("as_tensor", "as_custom_obj"):
        return Ref(_text(content["name"]))
    if kind in ("as_tensors", "as_optional_tensors"):
        return [_optional(item) for item in content]
    if kind == "as_optional_tensor":
        return _optional(content)
    if kind == "as_sym_int":
        return _symbol(content)
    if kind == "as_sym_ints":
        return [_symbol(item) for item in content]
    if kind in _OPAQUE:
        return None
    raise ModelError(f"the module has an argument of an unknown kind ({shown(kind)})")


def _optional(entry: Mapping[str, Any]) -> Ref | None:
    if "as_none" in entry:
        return None
    return Ref(_text(entry["as_tensor"]["name"] if "as_tensor" in entry else entry["name"]))


def _symbol(entry: Mapping[str, Any]) -> Any:
    if "as_int" in entry:
        if type(entry["as_int"]) is not int:
            raise TypeError(f"{entry['as_int']!r:.80} is not a whole number")
        return entry["as_int"]
    return Ref(_text(entry["as_name"]))


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"expected a text, got {value!r:.80}")
    return value
