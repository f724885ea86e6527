"""A plugin of pytest: puts the stand-in where Hummingbird is imported, and writes down how each test ended.

Used as ``-p benchmarks.hummingbird.plugin``; the outcomes go, a JSON object a line, to the file that the
environment variable `OUTCOMES` names.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.error import URLError

import pytest

from benchmarks.hummingbird import converters, reasons, standin

OUTCOMES = "HUMMINGBIRD_OUTCOMES"

standin.install()
converters.accept_types()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip what does not apply."""
    for item in items:
        told = reasons.reason(item.nodeid)
        if told is not None:
            item.add_marker(pytest.mark.skip(reason=told))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    """Write down outcome and reason of a test."""
    report = (yield).get_result()
    if call.when == "teardown" or (call.when == "setup" and not (report.skipped or report.failed)):
        return
    outcome, told = report.outcome, ""
    if report.skipped:
        told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        told = told.removeprefix("Skipped: ")
        outcome = "not applicable"
    elif report.failed:
        outcome, told = _failure(call.excinfo.value)
    record = {"test": item.nodeid.rpartition("/")[2], "outcome": outcome, "told": told[:400]}
    with open(os.environ[OUTCOMES], "a") as file:
        file.write(json.dumps(record) + "\n")


def _failure(error: BaseException) -> tuple[str, str]:
    """The outcome of a test that raised, and why."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, standin.NotApplicable):
            return "not applicable", str(cause)
        if isinstance(cause, URLError):
            return "not applicable", "needs the network"
        if type(cause).__module__.startswith("hbtvm"):
            error = cause
        cause = cause.__cause__
    text = " ".join(str(error).split())
    if "unexpected keyword argument" in text and "hbtvm" not in type(error).__module__:
        return "not applicable", f"libraries have changed: {text}"
    return "failed", f"{type(error).__name__}: {text}"
