"""What `pip install hbtvm` brings is enough to predict; the rest says which extra it takes."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm

ROOT = Path(__file__).resolve().parents[1]

WITHOUT = (
    "tvm", "xgboost", "scipy", "threadpoolctl", "filelock", "rich", "sklearn", "lightgbm", "joblib", "pandas",
    "polars", "pyarrow", "duckdb", "torch", "optuna", "matplotlib", "cloudpickle", "tornado",
)  # fmt: skip
"""Libraries that a machine which only predicts need not have."""


def run(code: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run code where none of the libraries `WITHOUT`, nor `more`, can be imported."""
    blocked = f"import sys\nfor name in {(*WITHOUT, *more)}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_predicting_on_a_cpu_takes_numpy_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, y)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    for name, model in {"forest": forest, "pipeline": pipeline}.items():
        hbtvm.compile(model, batch_sizes=1, threads=1).save(tmp_path / f"{name}.tar")
        np.save(tmp_path / f"{name}.npy", model.predict_proba(X))
    np.save(tmp_path / "X.npy", X)
    done = run(
        "import numpy, hbtvm\n"
        "X = numpy.load('X.npy')\n"
        "for name in ('forest', 'pipeline'):\n"
        "    model = hbtvm.load(name + '.tar')\n"
        "    expected = numpy.load(name + '.npy')\n"
        "    for n in (1, 200):\n"
        "        numpy.testing.assert_allclose(model.predict_proba(X[:n]), expected[:n], rtol=1e-5)\n"
        "print('right')\n",
        tmp_path,
        "tvm_ffi",
    )
    assert (done.stdout, done.stderr) == ("right\n", "")


def test_tuning_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("tree\n")
    done = run(
        "import hbtvm\n"
        "try:\n    hbtvm.tune\n"
        "except hbtvm.MissingPackageError as error:\n    print(isinstance(error, ImportError), error)\n"
        "from hbtvm.cli.main import main\n"
        "print(main(['tune', 'model.txt']), main(['compile', 'model.txt']))\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    sentence = "tuning and compiling need {}, which is not installed: pip install 'hbtvm[tune]'"
    first, last = done.stdout.splitlines()
    assert first in {f"True {sentence.format(name)}" for name in WITHOUT}
    assert last == "1 1"
    assert done.stderr.count("pip install 'hbtvm[tune]'") == 2 and "Traceback" not in done.stderr


def test_what_is_declared() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    required = {line.split()[0] for line in lines if line and not line.startswith("#")}
    assert required == {"numpy"}
    extras = config["options.extras_require"]
    assert "scipy" in extras["compile"] and all(
        "hbtvm[compile]" in extras[name] for name in ("tune", "tune-cpu")
    )


def test_the_demo_installs_what_it_needs_only(tmp_path: Path) -> None:
    """Without an environment for tests, ``make demo`` makes a smaller one; with it, none."""
    # As outside of make, which runs the tests and would print its folder.
    outside = {name: text for name, text in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS")}
    for made, folder in ((False, "new-demo"), (True, "new")):
        if made:
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / ".installed").touch()
        command = ["make", "--dry-run", "demo", f"VENV={tmp_path / 'new'}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=outside)
        assert ("-e '.[demo]'" in done.stdout) == (not made) and "[test]" not in done.stdout
        assert done.stdout.splitlines()[-1] == f"{tmp_path / folder}/bin/python -m benchmarks.demo"
    unneeded = ("duckdb", "matplotlib", "optuna", "polars", "pyarrow", "tornado")
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name in {unneeded}: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import hbtvm.api, benchmarks.demo as demo\n"
        "rows = demo.adult(200, missing_strings=True)\n"
        "demo.pipeline().fit(rows, demo.adult_target(rows))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
