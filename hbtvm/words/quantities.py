"""Times, counts and schedules in words, for the commands and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def duration(seconds: float | None) -> str:
    """Return a measured time with three digits: ``12.3 µs``; a dash for None."""
    if seconds is None:
        return "-"
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    # A value that rounds to 1000 of a unit is shown as 1.00 of the next.
    unit, size = next(((unit, size) for unit, size in units if seconds >= 0.9995 * size), ("ns", 1e-9))
    value = seconds / size
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def clock(seconds: float) -> str:
    """Return a time that a person waits: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number and its noun: ``1 trial``, ``2 trials``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def config(choices: Mapping[str, object]) -> str:
    """Return a schedule's choices in one line."""
    return " ".join(f"{name}={choice}" for name, choice in choices.items())


def unit(workload: Mapping[str, Any]) -> str:
    """Return the noun for a workload's ``rows``: ``structure`` for recursive models, else ``row``."""
    return "structure" if workload.get("family") == "recursive" else "row"


def model_shape(workload: Mapping[str, Any]) -> str:
    """Describe the model of a workload; list the fields of an unknown kind."""
    family, nodes = workload.get("family"), workload.get("nodes")
    if family == "recursive":
        return _recursive_shape(workload)
    if family == "linear":
        return ", ".join(["linear", *_counts(workload, "features", "numbers", "codes", "outputs")])
    if isinstance(nodes, list | tuple) and all(isinstance(node, Mapping) for node in nodes):
        kinds = [str(node.get("function", node.get("kind"))) for node in nodes if node.get("kind") != "input"]
        more = f" and {len(kinds) - _FEW} more" if len(kinds) > _FEW else ""
        counts = _counts(workload, "features", "outputs")
        return ", ".join([*counts, f"network of {' '.join(kinds[:_FEW])}{more}"])
    sizes = [workload.get(key) for key in ("features", "groups", "trees", "leaves", "depth")]
    if not all(isinstance(size, int) for size in sizes):
        shown = {key: workload[key] for key in sorted(workload) if key not in ("rows", "threads")}
        return config(shown) or "-"
    features, groups, trees, leaves, depth = (int(size) for size in sizes if size is not None)
    times = f"{groups} x " if groups > 1 else ""
    forest = (
        f"{count(features, 'feature')}, {times}{count(trees, 'tree')} of {leaves:,} leaves, depth {depth}"
    )
    return f"reasons of {forest}" if family == "reasons" else forest


_FEW = 8  # operators of a network that are listed


def _counts(workload: Mapping[str, Any], *keys: str) -> list[str]:
    numbers = {key: workload.get(key) for key in keys}
    return [count(number, key[:-1]) for key, number in numbers.items() if type(number) is int]


def _recursive_shape(workload: Mapping[str, Any]) -> str:
    """Describe a recursive model, and the structures of the measurement, by the fields that the log has."""

    def number(key: str) -> int | None:
        value = workload.get(key)
        return value if type(value) is int else None

    parts = ["recursive"]
    children, width, constants = number("children"), number("width"), number("constants")
    if children is not None:
        parts.append(
            f"up to {count(children, 'child', 'children')}" if children else "any number of children"
        )
    if width is not None:
        parts.append(f"{count(width, 'number')} a node")
    if constants is not None:
        parts.append(f"weights of {constants / 1024:,.0f} kB")
    nodes, levels = number("nodes"), number("levels")
    if nodes is not None and levels is not None:
        parts.append(f"structures of about {count(nodes, 'node')}, {count(levels, 'level')}")
    return ", ".join(parts)
