"""Measure what each test file costs, and list the files that `make test-fast` runs.

Run all tests as ``python -m pytest -n 2 --dist loadfile -p tests.costs``. For every test, each process adds
a line to a file in ``.cache/costs``: CPU seconds, of children too, and the number of kernels that the test
asks for. Then ``python -m tests.costs`` writes `FAST` and prints the slowest tests; ``--all`` adds folders.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
COSTS = TESTS.parent / ".cache" / "costs"
FAST = TESTS / "fast.txt"
SECONDS = 60.0
"""CPU seconds of all fast tests. Each of two processes needs half, and some 20 to import and collect them."""

BUILDS = 12
"""Kernels that all fast tests ask for."""

_asked: list[object] = []


@dataclass
class Cost:
    """What the tests of a file cost together."""

    tests: int = 0
    seconds: float = 0.0
    builds: int = 0


def pytest_configure() -> None:
    """Count the kernels that tests ask for, whether they are built or cached."""
    from hbtvm.compiler.building import cpu

    original = cpu._lowered

    def counted(*arguments: object) -> tuple[object, object]:
        _asked.append(arguments)
        return original(*arguments)

    cpu._lowered = counted


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before, asked = _seconds(), len(_asked)
    try:
        return (yield)
    finally:
        COSTS.mkdir(parents=True, exist_ok=True)
        entry = {"id": item.nodeid, "cpu": _seconds() - before, "builds": len(_asked) - asked}
        with (COSTS / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")


def _seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def chosen(costs: dict[str, Cost]) -> list[str]:
    """Return the files with the most tests per second that stay within `SECONDS` and `BUILDS`."""
    seconds, builds, names = 0.0, 0, []
    for name, cost in sorted(costs.items(), key=lambda item: item[1].seconds / item[1].tests):
        if seconds + cost.seconds <= SECONDS and builds + cost.builds <= BUILDS:
            seconds, builds = seconds + cost.seconds, builds + cost.builds
            names.append(name)
    return sorted(names)


def main() -> None:
    """Write `FAST` from what was measured."""
    entries = [json.loads(line) for path in COSTS.glob("*.jsonl") for line in path.read_text().splitlines()]
    if not entries:
        sys.exit("no costs were measured; run: python -m pytest -n 2 --dist loadfile -p tests.costs")
    files: dict[str, Cost] = defaultdict(Cost)
    folders: dict[str, Cost] = defaultdict(Cost)
    for entry in entries:
        name = entry["id"].partition("::")[0]
        for cost in (files[name], folders[str(Path(name).parent)]):
            cost.tests += 1
            cost.seconds += entry["cpu"]
            cost.builds += entry["builds"]
    names = chosen({name: cost for name, cost in files.items() if (TESTS.parent / name).exists()})
    FAST.write_text("".join(f"{name}\n" for name in names))
    for entry in sorted(entries, key=lambda entry: -entry["cpu"])[:50]:
        print(f"{entry['cpu']:7.1f} s {entry['builds']:4} kernels  {entry['id']}")
    if "--all" in sys.argv:
        for name, cost in sorted(folders.items()):
            print(f"{cost.seconds:7.1f} s {cost.builds:4} kernels {cost.tests:5} tests  {name}")
    fast = [files[name] for name in names]
    print(
        f"{FAST.name}: {len(names)} of {len(files)} files, {sum(cost.tests for cost in fast)} tests, "
        f"{sum(cost.seconds for cost in fast):.0f} s, {sum(cost.builds for cost in fast)} kernels"
    )


if __name__ == "__main__":
    main()
