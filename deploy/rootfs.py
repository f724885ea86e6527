"""Assemble the root file system of an image that serves models, from the Python that runs this script.

    python deploy/rootfs.py FOLDER

The folder gets the interpreter, its standard library without tests and graphical parts, the system's
libraries that they need, hbtvm, and what `hbtvm[serve]` requires. The interpreter's environment must have
them installed. Needs Linux and `ldd`; `strip` makes the result smaller.
"""

from __future__ import annotations

import argparse
import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import hbtvm

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

DISTRIBUTIONS = ("numpy", "httptools", "uvloop", "orjson", "prometheus-client")
"""What `hbtvm[serve]` requires."""

LOADED = ("libm.so.6", "libgcc_s.so.1")
"""Libraries that kernels and threads load when they run."""

UNUSED = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "*.pyi", "*.pxd", "*.h", "*.a", "*.c", "site-packages", "dist-packages",
    "config-3*", "idlelib", "tkinter", "turtle*", "ensurepip", "venv", "lib2to3", "distutils", "twisted",
    "pydoc_data", "sqlite3", "curses", "dbm", "f2py", "_sqlite3*", "_tkinter*", "_curses*", "readline*",
    "_dbm*", "_gdbm*", "_test*", "xxlimited*", "_crypt*", "nis.*", "_codecs_[hijkt]*",
)  # fmt: skip
"""Files of the standard library and of packages that serving does not need."""

COMPILED = shutil.ignore_patterns("__pycache__", "*.pyi")
USER = 65532  # the user of the service, as in other images without a shell


def assemble(root: Path) -> None:
    """Write the file system."""
    library = root / "usr/lib" / VERSION
    packages = library / "site-packages"
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=UNUSED)
    for name in DISTRIBUTIONS:
        for folder in _folders(name):
            shutil.copytree(folder, packages / folder.name, ignore=UNUSED)
    # Links are followed: the folders beside `hbtvm` are packages within it.
    shutil.copytree(Path(str(hbtvm.__file__)).parent, packages / "hbtvm", ignore=COMPILED)
    interpreter = root / "usr/bin" / VERSION
    interpreter.parent.mkdir(parents=True)
    shutil.copy2(os.path.realpath(sys.executable), interpreter)
    (interpreter.parent / "python3").symlink_to(VERSION)
    _copy_libraries(root, [interpreter, *library.rglob("*.so*")])
    compileall.compile_dir(library, quiet=2, stripdir=root, workers=1)
    _write_accounts(root)


def _folders(distribution: str) -> Iterable[Path]:
    """Return the folders of an installed distribution, besides its scripts."""
    files = metadata.files(distribution) or []
    names = {file.parts[0] for file in files if len(file.parts) > 1 and file.parts[0] not in ("..", "bin")}
    return [Path(str(metadata.distribution(distribution).locate_file(name))) for name in sorted(names)]


def _copy_libraries(root: Path, programs: Iterable[Path]) -> None:
    """Copy the system's libraries that programs and libraries need, and the program that links them."""
    needed: dict[str, Path] = {}
    environment = {**os.environ, "LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR"))}
    for program in programs:
        done = subprocess.run(["ldd", program], capture_output=True, text=True, env=environment)
        for name, path in re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", done.stdout, re.MULTILINE):
            if not Path(path).is_relative_to(root):
                needed[name or path] = Path(path)
    for name in LOADED:
        needed.setdefault(name, needed["libc.so.6"].parent / name)
    target = root / "usr/lib"
    for name, path in needed.items():
        place = root / path.relative_to("/") if name.startswith("/") else target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(os.path.realpath(path), place)
    if shutil.which("strip"):
        # The libraries of a wheel have moved sections, which `strip` would break.
        parts = [path for path in root.rglob("*.so*") if not path.parent.name.endswith(".libs")]
        for path in [*parts, root / "usr/bin" / VERSION]:
            subprocess.run(["strip", "--strip-unneeded", path], check=True, capture_output=True)


def _write_accounts(root: Path) -> None:
    for name in ("etc", "models", "proc", "tmp"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text(f"hbtvm:x:{USER}:{USER}:hbtvm:/models:/nonexistent\n")
    (root / "etc/group").write_text(f"hbtvm:x:{USER}:\n")


def size_of(root: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder to create")
    root = parser.parse_args().folder.absolute()
    if root.exists():
        parser.error(f"{root} exists; name a folder to create")
    assemble(root)
    print(f"{root}: {size_of(root) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
