"""Describe a package in words, for users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.runtime.package.calls import call_cells, call_heads
from hbtvm.runtime.package.file import KernelEntry, Package
from hbtvm.runtime.recursive.words import recursion_rows, recursion_words
from hbtvm.words.printable import shown
from hbtvm.words.quantities import count, duration
from hbtvm.words.tables import text_lines

HEADS = ("rows", "input", "strategy", "threads", "kernel", "per row", "schedule")
"""Headings of kernels over rows."""

RECURSIVE_HEADS = ("structures", "strategy", "threads", "kernels", "per structure", "schedule")
"""Headings of a recursive model's kernels."""

_SHOWN = 10
_LONGEST = 120
"""Most characters of a fact about the search."""

_MOST = 20_000


def summarize(package: Package, threads: int | None = None) -> str:
    """Return a description of a package in several lines: model, machine, kernels, tuning.

    Parameters
    ----------
    threads
        Most threads of a call, where the package is loaded.

    Returns
    -------
    Text without control characters, whatever the package holds.
    """
    described = facts(package, threads)
    lines = [described.pop("model"), *(f"  {name:<9}{text}" for name, text in described.items())]
    for title, heads, rows in kernel_tables(package):
        lines += [title, *(f"  {line}" for line in text_lines(heads, rows))]
    if package.tuning:
        lines += [
            "tuning",
            *(f"  {name}: {shown(text, _LONGEST)}" for name, text in tuning_facts(package).items()),
        ]
    return "\n".join(shown(line.rstrip(), _MOST) for line in lines)


def facts(package: Package, threads: int | None = None) -> dict[str, str]:
    """Return the model and the machine in words, by name; `threads` as for `summarize`."""
    target = package.target
    described = {
        "model": f"{package.library if package.recursion is None else 'recursive'} {package.model}",
        **_pipeline(package),
        **_stages(package),
        **_computed(package),
        "output": _output(package),
        "compiled": _machine(target),
        "by": f"hbtvm {package.hbtvm_version or '?'}, tvm {package.tvm_version or '?'}"
        + (f", CUDA {package.cuda_version}" if package.cuda_version else ""),
    }
    if threads is not None and not on_gpu(target):
        described["threads"] = f"up to {threads} for a call"
    return described


def _computed(package: Package) -> dict[str, str]:
    """Return the model's computation and input in words."""
    anchor = anchor_words(package.forest)
    if package.recursion is None:
        return {**anchor, "input": _input(package)}
    layers = {"layers": "; ".join(anchor.values())} if package.kernels else {}
    return {**recursion_words(package.recursion), **layers}


def _pipeline(package: Package) -> dict[str, str]:
    """Return a pipeline's steps and rewrites in words."""
    described = {}
    if package.steps:
        described["steps"] = ", ".join(f"{name} ({kind})" for name, kind in package.steps)
    if package.rewrites:
        described["folded"] = "; ".join(package.rewrites)
    if package.python:
        described["python"] = f"{', '.join(map(str, package.python))}: imported where the package is loaded"
    return described


def anchor_words(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return what the kernels compute in words, by name, from `Package.forest`."""
    if facts["operator"] == "linear":
        text = f"{count(facts['numbers'], 'weighted number')}"
        if facts["categories"]:
            text += f", {count(facts['categories'], 'table')} of {facts['entries']:,} categories in all"
        return {"linear": text}
    if facts["operator"] == "network":
        return {"network": _operators(facts["operators"])}
    if facts["operator"] == "columns":
        return {"columns": f"{count(facts['n_outputs'], 'column')}, computed by numpy"}
    if facts["operator"] == "reasons":
        text = f"of {count(facts['players'], 'column')}, {facts['trees']:,} trees, depth {facts['depth']}"
        return {"Shapley values": text}
    return {"forest": f"{facts['trees']:,} trees, {facts['leaves']:,} leaves, depth {facts['depth']}"}


def _operators(kinds: Sequence[str]) -> str:
    """Return the operators' counts by kind, the most expensive first."""
    counts = Counter(kind for kind in kinds if kind != "constant")
    named = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    listed = ", ".join(f"{number:,} {kind}" for kind, number in named[:_SHOWN])
    return f"{count(counts.total(), 'operator')}: {listed}{', ...' if len(named) > _SHOWN else ''}"


def _stages(package: Package) -> dict[str, str]:
    """Return the stages in words."""
    if not package.stages:
        return {}
    texts = (
        f"{name}: {text}" for stage in package.stages for name, text in anchor_words(stage.facts).items()
    )
    return {"first": "; ".join(texts)}


def size_in_words(package: Package) -> str:
    """Return a model's size in a few words, e.g. ``100 trees``."""
    facts, columns = package.forest, count(package.input.n_features, "column")
    if package.recursion is not None:
        return f"cell {package.recursion.cell} of {count(package.recursion.width, 'number')} a node"
    if facts["operator"] == "linear":
        return f"linear model, {columns}"
    if facts["operator"] == "network":
        kernels = f" in {len(package.stages) + 1} kernels" if package.stages else ""
        return f"{count(len(facts['operators']), 'operator')}{kernels}, {columns}"
    return (
        f"{facts['trees']} trees" if facts["operator"] in ("trees", "reasons") else f"{columns}, transformed"
    )


KernelTable = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""A title, headings, and rows of cells."""


def kernel_tables(package: Package) -> list[KernelTable]:
    """Return tables with a row for each kernel: a recursive model's, then stages', then the last kernels'.

    If calls were timed, their table follows.
    """
    tables: list[KernelTable] = []
    if package.recursion is not None:
        tables.append(("kernels", RECURSIVE_HEADS, recursion_rows(package.recursion)))
    rows = [_kernel(kernel) for kernel in package.all_kernels]
    if rows:
        tables.append(("kernels of the layers behind" if tables else "kernels", HEADS, rows))
    if package.calls:
        unit = "rows" if package.recursion is None else "structures"
        heads = (unit, *call_heads(package.calls).values())
        cells = [(f"{call.rows:,}", *call_cells(package.calls, call.rows)) for call in package.calls]
        tables.append(("calls, with reading of the rows", heads, cells))
    return tables


def tuning_facts(package: Package) -> dict[str, str]:
    """Return the kernels' provenance, by name."""
    return {str(name): words(value) for name, value in sorted(package.tuning.items())}


def words(value: Any) -> str:
    """Return a value of JSON in words, without brackets and quotes."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {words(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(words, value))
    return str(value)


def _machine(target: Mapping[str, Any]) -> str:
    if target.get("kind") == "cuda":
        return f"for NVIDIA GPUs: {target['arch']}, and as portable code others from sm_75 on"
    if target.get("kind") == "opencl":
        return f"for OpenCL devices with blocks of {target['max_threads_per_block']} threads"
    details = ", ".join([*([target["arch"]] if "arch" in target else []), *target["features"]])
    return f"for {target.get('mcpu', 'this CPU')} ({details or 'no extensions'})"


def _kernel(kernel: KernelEntry) -> tuple[str, ...]:
    threads = str(kernel.threads)
    if kernel.threads > 1 and kernel.parallel != "none":
        threads += f" over {kernel.parallel}"
    call, row = "-", "-"
    if kernel.seconds is not None:
        call, row = duration(kernel.seconds), duration(kernel.seconds / kernel.rows)
    takes = kernel.dtype if kernel.missing else f"{kernel.dtype}, no NaN"
    return f"{kernel.rows:,}", takes, kernel.strategy, threads, call, row, _config(kernel.config)


def _config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(config.items()))


def _input(package: Package) -> str:
    spec = package.input
    if spec.rows_are_values:
        return "rows of one value each: texts, labels or features"
    parts = [f"{spec.n_features} columns"]
    if spec.feature_names:
        names = ", ".join(spec.feature_names[:_SHOWN])
        parts[0] += f" ({names}{', ...' if spec.n_features > _SHOWN else ''})"
    categories = len(spec.category_order) or sum(map(bool, spec.categories.values()))
    if categories:
        parts.append(f"{categories} of them categories")
    # In front of a pipeline, the operation on a column describes it.
    numbers = [feed for feed in package.parts.feeds if feed.encoder is None]
    allowed = any(feed.allow_nan for feed in numbers) if package.parts.feeds else spec.allow_nan
    parts.append("missing values allowed" if allowed else "no missing values")
    return ", ".join(parts)


def _output(package: Package) -> str:
    output = package.output
    text: str = output.kind
    for labels in output.classes:
        listed = ", ".join(map(str, np.asarray(labels).tolist()[:_SHOWN]))
        text += f"; {len(labels)} classes: {listed}{', ...' if len(labels) > _SHOWN else ''}"
    gives = [*output.outputs, *(["transform"] if package.transform is not None else [])]
    gives += ["score"] if package.scores is not None else []
    gives += package.views
    return text + (f"; gives {', '.join(gives)}" if gives else "")
