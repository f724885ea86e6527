"""`hbtvm.tune` as people call it: its signature, its display and its log."""

from __future__ import annotations

import inspect
import os
import pty
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import hbtvm
from hbtvm.logs.store import Log
from hbtvm.options import CompileOptions, SearchOptions

X = np.random.default_rng(0).normal(size=(50, 3))
MODEL = LinearRegression().fit(X, X[:, 0])
FEW: dict[str, Any] = {"batch_sizes": 16, "trials": 2, "threads": 1}


def test_the_signature_and_the_docstring_name_every_option() -> None:
    for function, options in ((hbtvm.tune, SearchOptions), (hbtvm.search, SearchOptions)):
        known = inspect.signature(options).parameters
        actual = dict(inspect.signature(function).parameters)
        assert next(iter(actual)) == "model"
        assert actual.keys() - {"model", "check"} == known.keys()
        assert all(name in (function.__doc__ or "") for name in known)
        for name in known.keys() - {"log", "progress"}:
            assert actual[name].default == known[name].default, name
            assert actual[name].annotation == known[name].annotation, name
    assert all(name in (hbtvm.compile.__doc__ or "") for name in inspect.signature(CompileOptions).parameters)
    with pytest.raises(TypeError, match=r"tune\(\) got an unexpected keyword argument 'time_budgett'"):
        hbtvm.tune(MODEL, time_budgett=3)  # type: ignore[call-arg]


@pytest.mark.usefixtures("shared_workers")
def test_quiet_elsewhere_with_the_log_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hbtvm.tune(MODEL, log=None, **FEW)
    assert os.listdir() == []
    tuned = hbtvm.tune(MODEL, **FEW)
    np.testing.assert_allclose(tuned.predict(X), MODEL.predict(X), rtol=1e-5, atol=1e-6)
    assert len(Log("hbtvm-tuning.jsonl").read().records) >= 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("shared_workers")
def test_a_display_in_a_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """IPython's names stand in for its kernel, which is not needed for the tests."""
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})()
    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    vars(ipython)["get_ipython"], vars(module)["display"] = (lambda: shell), display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.chdir(tmp_path)
    hbtvm.tune(MODEL, log=None, progress=False, **FEW)
    assert not shown
    hbtvm.tune(MODEL, **FEW)
    assert "tuning LinearRegression" in shown[0]
    assert "interrupt to stop here" in shown[0]
    assert shown[-1] == ""  # the display is cleared
    assert "tuned LinearRegression: 2 trials in" in capsys.readouterr().err


def test_a_display_in_a_terminal(tmp_path: Path) -> None:
    script = (
        "import numpy as np; from sklearn.linear_model import LinearRegression; import hbtvm; "
        "x = np.eye(9); hbtvm.tune(LinearRegression().fit(x, x[0]), batch_sizes=16, trials=2, threads=1)"
    )
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        os.execve(sys.executable, [sys.executable, "-c", script], environment)
    parts = []
    try:
        while part := os.read(terminal, 4096):
            parts.append(part)
    except OSError:  # the process has ended
        pass
    _, status = os.waitpid(process, 0)
    text = b"".join(parts).decode()
    assert os.waitstatus_to_exitcode(status) == 0, text
    for words in ("tuning LinearRegression", "interrupt to stop here", "tuned LinearRegression: 2 trials in"):
        assert words in text
    assert (tmp_path / "hbtvm-tuning.jsonl").is_file()
