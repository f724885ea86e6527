"""The file of results: every finished cell, kept as soon as it is measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.peers.cells import Cell

FORMAT = 1


class Results:
    """Measured cells in a JSON file.

    Parameters
    ----------
    path
        The file; read if it exists.

    Raises
    ------
    ValueError
        If the file has figures of another machine, or is of another format.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        here = machine()
        self.cells: dict[Cell, dict[str, Any]] = {}
        if not path.exists():
            self._document: dict[str, Any] = {"format": FORMAT, "machine": here, "models": {}, "cells": {}}
            return
        self._document = json.loads(path.read_text())
        if self._document.get("format") != FORMAT:
            raise ValueError(f"{path} has another format; name another folder with -o")
        if self._document["machine"] != here:
            raise ValueError(f"{path} has figures of another machine; name another folder with -o")
        self.cells = {Cell.from_key(key): value for key, value in self._document["cells"].items()}

    @property
    def machine(self) -> dict[str, Any]:
        """Where it was measured."""
        found: dict[str, Any] = self._document["machine"]
        return found

    @property
    def models(self) -> dict[str, Any]:
        """The models measured, by "model data"."""
        found: dict[str, Any] = self._document["models"]
        return found

    def has(self, cell: Cell, peers: Sequence[str], search: bool, mcpu: str | None = None) -> bool:
        """Whether a cell was measured with these peers, with or without a search, for this CPU."""
        found = self.cells.get(cell)
        if found is None or not set(peers) <= set(found["peers"]):
            return False
        return found["search"] == search and found.get("mcpu") == mcpu

    def add(
        self,
        cell: Cell,
        figures: dict[str, Any],
        *,
        search: bool,
        mcpu: str | None = None,
        versions: dict[str, dict[str, str]],
        model: dict[str, Any],
    ) -> None:
        """Keep a cell; it replaces what was there, since only peers measured together compare."""
        kept = {
            "search": search,
            **({"mcpu": mcpu} if mcpu else {}),
            "measured": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "commit": commit(),
            "versions": versions,
            "peers": figures,
        }
        self.cells[cell] = kept
        self._document["cells"][cell.key] = kept
        names = ("trees", "leaves", "features", "task", "classes", "train_seconds")
        self.models[f"{cell.model} {cell.data}"] = {name: model[name] for name in names}
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._document, indent=1) + "\n")
        os.replace(unfinished, self._path)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu, flags = platform.processor(), set[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                cpu = value.strip()
            elif name.strip() == "flags":
                flags = set(value.split())
    except OSError:
        pass
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "vectors": [name for name in ("avx2", "avx512f", "avx512vbmi", "amx_tile") if name in flags],
        "system": f"{platform.system()} {platform.machine()}",
    }


def commit() -> str | None:
    """The commit of hbtvm that was measured, with a plus sign if files differ from it."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
