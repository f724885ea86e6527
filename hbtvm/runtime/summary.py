"""A package, told to its user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hbtvm.printable import shown
from hbtvm.runtime.package import KernelEntry, Package

_SHOWN = 10


def summarize(package: Package, threads: int | None = None) -> str:
    """Describe a package in several lines: model, machine, kernels, where they come from.

    Parameters
    ----------
    threads
        Most threads of a call, where the package is loaded.
    """
    forest, target = package.forest, package.target
    lines = [
        f"{package.library} {package.model}",
        _line("forest", f"{forest['trees']:,} trees, {forest['leaves']:,} leaves, depth {forest['depth']}"),
        _line("input", _input(package)),
        _line("output", _output(package)),
        _line("compiled", _machine(target)),
        _line("by", f"hbtvm {package.hbtvm_version or '?'}, tvm {package.tvm_version or '?'}"),
    ]
    if threads is not None and target.get("kind") != "cuda":
        lines.append(_line("threads", f"up to {threads} for a call"))
    lines += ["kernels", *_table([_HEAD, *map(_kernel, package.kernels)])]
    if package.tuning:
        lines += ["tuning", *(f"  {key}: {_short(value)}" for key, value in sorted(package.tuning.items()))]
    # Names and labels are others' text, and this is for terminals.
    return "\n".join(shown(line.rstrip(), most=10_000) for line in lines)


_HEAD = ("rows", "input", "strategy", "threads", "per call", "per row", "schedule")


def _machine(target: Mapping[str, Any]) -> str:
    if target.get("kind") == "cuda":
        return f"for NVIDIA GPUs: {target['arch']}, and as portable code others from sm_75 on"
    return f"for {target.get('mcpu', 'this CPU')} ({', '.join(target['features']) or 'no extensions'})"


def _kernel(kernel: KernelEntry) -> tuple[str, ...]:
    threads = str(kernel.threads)
    if kernel.threads > 1 and kernel.parallel != "none":
        threads += f" over {kernel.parallel}"
    call, row = "-", "-"
    if kernel.seconds is not None:
        call, row = _time(kernel.seconds), _time(kernel.seconds / kernel.rows)
    takes = kernel.dtype if kernel.missing else f"{kernel.dtype}, no NaN"
    return f"{kernel.rows:,}", takes, kernel.strategy, threads, call, row, _config(kernel.config)


def _config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(config.items()))


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]


def _input(package: Package) -> str:
    spec = package.input
    parts = [f"{spec.n_features} columns"]
    if spec.feature_names:
        names = ", ".join(spec.feature_names[:_SHOWN])
        parts[0] += f" ({names}{', ...' if spec.n_features > _SHOWN else ''})"
    categories = len(spec.category_order) or sum(map(bool, spec.categories.values()))
    if categories:
        parts.append(f"{categories} of them categories")
    parts.append("missing values allowed" if spec.allow_nan else "no missing values")
    return ", ".join(parts)


def _output(package: Package) -> str:
    output = package.output
    text: str = output.kind
    for labels in output.classes:
        some = ", ".join(map(str, np.asarray(labels).tolist()[:_SHOWN]))
        text += f"; {len(labels)} classes: {some}{', ...' if len(labels) > _SHOWN else ''}"
    if output.available():
        text += f"; gives {', '.join(output.available())}"
    return text


def _line(name: str, text: str) -> str:
    return f"  {name:<9}{text}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else text[:97] + "..."


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
