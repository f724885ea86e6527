"""The benchmark of the HTTP service, with a stand-in for ``wrk``."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.serve import __main__ as bench
from benchmarks.serve.load import Load, Payload

_WRK = """#!{python}
import http.client, json, sys, urllib.parse
script, url = sys.argv[-2:]
body = open(script.replace(".lua", ".body"), "rb").read()
at = urllib.parse.urlsplit(url)
connection = http.client.HTTPConnection(at.netloc)
failed = 0
for _ in range(20):
    connection.request("POST", at.path, body, {{"content-type": "application/json"}})
    answer = connection.getresponse()
    answer.read()
    failed += answer.status != 200
print("RESULT", json.dumps(dict(requests=20, microseconds=10**6, p50=100, p99=200, failed=failed)))
"""


@pytest.fixture
def wrk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that sends 20 requests."""
    path = tmp_path / "bin" / "wrk"
    path.parent.mkdir()
    path.write_text(_WRK.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    given = ["serve", "-o", str(folder / "out"), "--trees", "3", "--rounds", "2", *arguments]
    monkeypatch.setattr(sys, "argv", given)
    return bench.main()


@pytest.mark.usefixtures("wrk")
def test_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = bench._prepare
    monkeypatch.setattr(bench, "_prepare", lambda *given: prepare(*given)[::2])
    monkeypatch.setattr(bench.hbtvm, "compile", functools.partial(bench.hbtvm.compile, batch_sizes=1))
    assert run(monkeypatch, tmp_path, "--servers", "raw", "hbtvm") == 0
    text = (tmp_path / "out" / "serve.md").read_text()
    assert [text.count(one) for one in ("### 1 row, JSON", "### 100 rows, binary")] == [1, 1]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    for found in results["1 row, JSON"].values():
        assert [(one["requests"], one["failed"]) for one in found] == [(20, 0)] * 2
    # (The stand-in sends no header that tells where the tensors' bytes begin.)
    assert [one["failed"] for one in results["100 rows, binary"]["hbtvm"]] == [20] * 2
    assert "(40 failed)" in text


def test_without_the_load_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert run(monkeypatch, tmp_path) == 1
    assert "apt-get install wrk" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="apt-get install wrk"):
        Load(tmp_path / "post.lua", "http://127.0.0.1:1/", 1, 1, 0)


def test_scripts(tmp_path: Path) -> None:
    Payload("x", b'{"a": 1}\n\0', {"content-type": 'a"b'}).write(tmp_path / "post.lua")
    assert (tmp_path / "post.body").read_bytes() == b'{"a": 1}\n\0'
    text = (tmp_path / "post.lua").read_text()
    assert 'wrk.headers["content-type"] = "a\\"b"' in text and "done = function" in text
