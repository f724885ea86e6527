"""The report of a check: a table in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hbtvm.gpucheck.run import NOT_RUN


def report(steps: Sequence[str], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of all steps, failed steps first.

    `steps`: names, in order.
    `results`: by name, of the steps that have run.
    """
    counts = Counter(results[name]["status"] if name in results else NOT_RUN for name in steps)
    order = ("failed", "passed", "left out", NOT_RUN)
    lines = [", ".join(f"{counts[status]} {status}" for status in order if counts[status]), ""]
    lines += ["| step | result | seconds | |", "|---|---|---|---|"]

    def rank(name: str) -> int:
        return int(results.get(name, {}).get("status") != "failed")

    for name in sorted(steps, key=rank):
        result = results.get(name, {"status": NOT_RUN, "said": ""})
        seconds = f"{result['seconds']:.1f}" if "seconds" in result else ""
        said = " ".join(str(result["said"]).split()).replace("|", "\\|")
        lines.append(f"| {name} | {result['status']} | {seconds} | {said} |")
    return "\n".join(lines) + "\n"
