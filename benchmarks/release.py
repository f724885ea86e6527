"""``make release-check``: build the sdist and the wheel, and use both outside the checkout.

Builds from the committed files, and compares the wheel's files with the checkout's. Installs the wheel and
the sdist into environments of their own, as a machine that only predicts would, and predicts there with a
package that the checkout compiled. Prints the size of such an installation.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"hbtvm": "hbtvm"} | {
    name: f"hbtvm/{name}" for name in ("tuning", "schedules", "cost_model", "logs")
}
"""The checkout's folders, and where an installation has them."""


def run(*command: object, folder: Path | None = None) -> str:
    """Run a command and return what it printed. Raises `SystemExit` with its output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nfailed: {' '.join(words)}")
    return done.stdout


def copied(folder: Path) -> Path:
    """Copy the checkout's files, without those that git ignores."""
    for file in run("git", "ls-files", "-co", "--exclude-standard", folder=ROOT).splitlines():
        if os.path.lexists(ROOT / file):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, folder / file, follow_symlinks=False)
    return folder


def built(source: Path, out: Path, *options: str) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from the sdist; check how an index would show them."""
    run(sys.executable, "-m", "build", *options, "--outdir", out, source)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    return sdist, wheel


def difference(source: Path, wheel: Path) -> set[str]:
    """Return the files that only the checkout or only the wheel has."""
    expected = {
        f"{there}/{path.relative_to(source / here).as_posix()}"
        for here, there in FOLDERS.items()
        for path in (source / here).rglob("*")
        if path.is_file() and not path.is_symlink() and path.name != ".gitkeep"
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("hbtvm/")}
    return expected ^ packed


def megabytes(folder: Path) -> float:
    """Return the size of a folder's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> int:
    """Check a release; returns the exit status."""
    if run("git", "status", "--porcelain", folder=ROOT):
        raise SystemExit("there are changes that are not committed; commit them, then check the release.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = copied(folder / "source")
        sdist, wheel = built(source, folder / "dist")
        print(
            f"built {sdist.name} ({megabytes_of(sdist)}) and {wheel.name} ({megabytes_of(wheel)})", flush=True
        )
        if differing := difference(source, wheel):
            raise SystemExit(f"only the checkout or only the wheel has {', '.join(sorted(differing))}")
        version = wheel.name.split("-")[1]
        heading = re.search(r"^## .*$", (source / "CHANGELOG.md").read_text(), re.MULTILINE)
        if heading is None or version not in heading[0]:
            raise SystemExit(f"CHANGELOG.md does not begin with a section for {version}")
        expected = _model(folder)
        for distribution in (wheel, sdist):
            print(f"{distribution.name}: {_predicts(folder, distribution, expected)}", flush=True)
    print(f"hbtvm {version} can be released")
    return 0


def megabytes_of(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"


def _model(folder: Path) -> np.ndarray:
    """Write a package and rows; return the library's predictions."""
    from sklearn.ensemble import RandomForestRegressor

    import hbtvm

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 5))
    model = RandomForestRegressor(10, max_depth=5, random_state=0, n_jobs=1).fit(
        rows, rows[:, 0] * rows[:, 1]
    )
    hbtvm.compile(model, batch_sizes=(100,), threads=1).save(folder / "model.tar")
    np.savetxt(folder / "rows.csv", rows, delimiter=",", fmt="%.17g")
    predictions: np.ndarray = model.predict(rows)
    return predictions


def _predicts(folder: Path, distribution: Path, expected: np.ndarray) -> str:
    """Install a distribution into an environment of its own and predict there; describe the installation."""
    environment = folder / distribution.suffix.strip(".")
    venv.create(environment, with_pip=True)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    before = megabytes(packages)
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-compile", distribution)
    after = megabytes(packages)
    out = folder / f"{environment.name}.csv"
    command = environment / "bin" / "hbtvm"
    run(command, "predict", "model.tar", "rows.csv", "-o", out, folder=folder)
    with out.open() as file:
        predictions = [float(row[0]) for row in list(csv.reader(file))[1:]]
    np.testing.assert_allclose(predictions, expected, rtol=1e-5)
    parts = {
        path.name: megabytes(path) for path in packages.iterdir() if path.name.startswith(("hbtvm", "numpy"))
    }
    sizes = ", ".join(f"{name} {size:.1f}" for name, size in sorted(parts.items()) if size > 0.1)
    return f"predicts right; an installation that only predicts takes {after - before:.0f} MB ({sizes})"


if __name__ == "__main__":
    sys.exit(main())
