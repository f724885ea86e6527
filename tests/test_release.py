"""A release: what `python -m build` makes has all files, and works outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hbtvm
from benchmarks.release import ROOT, built, copied, difference

if not (ROOT / ".git").exists():
    pytest.skip("this is not a git checkout", allow_module_level=True)

USE = """
import sys
import numpy as np
from sklearn.ensemble import RandomForestRegressor
import hbtvm, hbtvm.api, hbtvm.logs, hbtvm.schedules, hbtvm.tuning, hbtvm.cost_model
from hbtvm.cli.main import main

rows = np.random.default_rng(0).normal(size=(200, 4))
model = RandomForestRegressor(3, max_depth=3, random_state=0).fit(rows, rows[:, 0] * rows[:, 1])
hbtvm.compile(model, batch_sizes=1, threads=1).save("model.tar")
np.testing.assert_allclose(hbtvm.load("model.tar").predict(rows), model.predict(rows), rtol=1e-5)
places = {module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "hbtvm"}
assert all(place is None or place.startswith(sys.argv[1]) for place in places), places
main(["--version"])
"""


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The copied checkout, its sdist, and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("release")
    source = copied(folder / "source")
    return source, *built(source, folder / "dist", "--no-isolation")


def test_the_wheel_works_outside_the_checkout(distributions: tuple[Path, Path, Path], tmp_path: Path) -> None:
    source, _, wheel = distributions
    assert wheel.name == f"hbtvm-{hbtvm.__version__}-py3-none-any.whl"
    assert not difference(source, wheel)
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"hbtvm/py.typed", "hbtvm/tuning/__init__.py", "hbtvm/native/executor/executor.c"} <= names
    assert any(name.startswith("hbtvm/logs/records/") and name.endswith(".xz") for name in names)
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", USE, str(site)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"hbtvm {hbtvm.__version__}\n"), done.stderr


def test_the_sdist_has_documents_and_tests(distributions: tuple[Path, Path, Path]) -> None:
    source, sdist, _ = distributions
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    names = {member.name.partition("/")[2] for member in members}
    for folder in ("docs", "tests", "benchmarks"):
        files = (path for path in (source / folder).rglob("*") if path.is_file() and path.name != ".gitkeep")
        missing = {path.relative_to(source).as_posix() for path in files} - names
        assert missing <= {f"tests/test_{name}.py" for name in ("house", "imports", "release")}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"} <= names
