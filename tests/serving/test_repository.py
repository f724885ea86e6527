"""Loading models again and again: what the old ones held is released with their last user."""

from __future__ import annotations

import copy
import gc
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from hbtvm.errors import HbtvmError, PackageError
from hbtvm.serving.messages import Request
from hbtvm.serving.metrics import Metrics
from hbtvm.serving.repository import Repository
from hbtvm.serving.served import Inline, Served
from tests.serving.models import CASES, frame, numbers, texts

NAMES = ("classes", "pipeline", "words", "clusters")


@pytest.fixture(autouse=True)
def _frozen() -> Iterator[None]:
    """As the service does: garbage is looked for often, and not in all that other tests imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def repository(packages: Path) -> Repository:
    made = Repository({name: packages / f"{name}.tar" for name in NAMES}, Metrics(), threads=2)
    for name in NAMES:
        made.load(name)
    return made


def tensors(name: str) -> dict[str, np.ndarray]:
    """Enough rows for all threads."""
    if name == "pipeline":
        X = frame(3000)
        return {
            one: X[one].to_numpy(object if one == "job" else None).reshape(-1, 1)
            for one in ("age", "job", "pay")
        }
    if name == "words":
        return {"input": np.array(texts() * 300, object)}
    return {"input": np.tile(numbers(), (300, 1))}


def use(served: Served) -> None:
    served.infer(Request(None, tensors(served.name), (), False))


def held() -> tuple[Counter[str], int, int]:
    """Mapped libraries, threads, open files."""
    me = psutil.Process()
    lines = [line.split(None, 5) for line in Path("/proc/self/maps").read_text().splitlines()]
    mapped = Counter(
        one[5].rpartition("/")[2] for one in lines if len(one) > 5 and (".so" in one[5] or "memfd" in one[5])
    )
    return mapped, me.num_threads(), me.num_fds()


def test_old_models_are_released(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for served in repository.served.values():
        use(served)
    before = None
    for turn in range(6):
        for name in NAMES:
            repository.load(name)
            use(repository.served[name])
        if turn == 1:  # what a second turn loads once is there
            before = held()
    assert before is not None
    after = held()
    # What 16 loads leave behind adds up; a thread that a library starts meanwhile does not.
    assert after[0] == before[0] and after[1] < before[1] + 4 and after[2] <= before[2]
    assert not list(tmp_path.iterdir())


def test_models_are_used_while_they_are_replaced(repository: Repository) -> None:
    """Several threads predict with whatever is there, and with what was there before."""
    ends = threading.Event()
    errors: list[BaseException] = []

    def work(name: str) -> None:
        wanted = CASES[name].expected("predict")
        given = {one: value[: len(wanted)] for one, value in tensors(name).items()}
        if name == "pipeline":
            given = {one: frame()[one].to_numpy(object if one == "job" else None) for one in given}
        try:
            while not ends.is_set():
                served = repository.served[name]
                for _ in range(20):
                    found = served.infer(Request(None, given, (), False))[0][1]
                    assert found.tolist() == wanted.tolist()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in NAMES]
    for one in threads:
        one.start()
    for _ in range(3):
        for name in NAMES:
            repository.load(name)
    ends.set()
    for one in threads:
        one.join()
    assert not errors


def test_a_model_in_use_is_there_until_it_is_not(repository: Repository) -> None:
    old = repository.served["words"]
    repository.load("words")
    assert repository.served["words"] is not old and old.version == "1"
    use(old)


def test_models_keep_their_order(repository: Repository) -> None:
    first = repository.names[0]
    repository.unload(first)
    assert [served.name for served in repository.models] == list(repository.names[1:])
    repository.load(first)
    assert [served.name for served in repository.models] == list(repository.names)


def test_what_nobody_thought_of_does_not_end_the_watch(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Served:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("hbtvm.serving.repository.Served", fails)
    repository.refresh(force=True)
    assert caplog.text.count("a bug (version 1 stays)") == len(NAMES)
    assert repository.ready and {one["reason"] for one in repository.index()} == {"a bug"}


def test_a_disk_that_hangs_stops_neither_other_models_nor_requests(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()

    def hangs(name: str, path: Path, threads: int, device: str | None, version: str, *_: Any) -> Served:
        if name == "pipeline":
            assert answers.wait(60)
        served = copy.copy(repository.served[name])  # which takes no time
        served.version = version
        return served

    monkeypatch.setattr("hbtvm.serving.repository.Served", hangs)
    monkeypatch.setattr("hbtvm.serving.repository.inline", lambda served: Inline(1, 1))
    monkeypatch.setattr("hbtvm.serving.repository.PATIENCE", 0.5)
    repository.refresh(force=True)
    versions = {entry["name"]: (entry["version"], entry["reason"]) for entry in repository.index()}
    late = versions.pop("pipeline")
    assert late[0] == "1" and "pipeline.tar takes more than 0.5 s to read" in late[1]
    assert set(versions.values()) == {("2", "")}
    assert caplog.text.count("(version 1 stays)") == 1
    for change in (repository.load, repository.unload):
        with pytest.raises(HbtvmError, match="has been loading"):
            change("pipeline")
    monkeypatch.setattr("hbtvm.serving.repository.PATIENCE", 60)
    repository.refresh()  # which does not wait for it again
    answers.set()
    repository.load("pipeline")
    assert {entry["reason"] for entry in repository.index()} == {""}
    assert repository.served["pipeline"].version == "3"


def test_damaged_packages_are_refused(packages: Path, tmp_path: Path) -> None:
    """Bytes changed at random: the old model stays whatever they are."""
    whole = (packages / "classes.tar").read_bytes()
    path = tmp_path / "m.tar"
    path.write_bytes(whole)
    repository = Repository({"m": path}, Metrics(), threads=1)
    repository.load("m")
    old, rng = repository.served["m"], np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 3):
            damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            repository.load("m")
        except PackageError:
            assert repository.served["m"] is old
        else:
            old = repository.served["m"]
    path.write_bytes(whole)
    repository.refresh()
    assert repository.index()[0]["reason"] == ""
