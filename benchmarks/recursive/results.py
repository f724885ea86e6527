"""The file of results: every finished cell, kept as soon as it is measured."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.peers.results import commit, machine
from benchmarks.recursive.cases import MODELS

FORMAT = 1


@dataclass(frozen=True, order=True)
class Cell:
    """One comparison: a model's hidden size, structures of a call, threads."""

    model: str
    hidden: int
    size: int
    threads: int

    @property
    def key(self) -> str:
        """Its name in the results."""
        return f"{self.model}/{self.hidden}/{self.size}/{self.threads}"

    @classmethod
    def from_key(cls, key: str) -> Cell:
        """The cell of a `key`."""
        model, *numbers = key.split("/")
        return cls(model, *map(int, numbers))

    @property
    def title(self) -> str:
        """For people."""
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return f"{MODELS[self.model].title} H={self.hidden}, batch {self.size}, {threads}"


class Results:
    """Results in a JSON file.

    Parameters
    ----------
    path
        The file; read if it exists.
    mcpu
        CPU that libraries are restricted to; None: this one.

    Attributes
    ----------
    cells, ablation, unrolling
        By cell: ``peers``, the figures of `measure.race` by peer or by step of the ablation; ``bound``,
        seconds; ``operations`` and ``levels``.
    linearise
        By kind and batch size: ``seconds`` and ``nodes``.
    limits
        By threads, as text: see `limits.Limits`.
    versions
        By peer.

    Raises
    ------
    ValueError
        If the file has figures of another machine, or is of another format.
    """

    def __init__(self, path: Path, mcpu: str | None = None) -> None:
        self._path, self.machine = path, machine() | ({"mcpu": mcpu} if mcpu else {})
        document: dict[str, Any] = {"format": FORMAT, "machine": self.machine}
        if path.exists():
            document = json.loads(path.read_text())
            for name, expected in (("format", FORMAT), ("machine", self.machine)):
                if document.get(name) != expected:
                    raise ValueError(f"{path} has another {name}; name another folder with -o")
        self.cells, self.ablation, self.unrolling = (
            {Cell.from_key(key): told for key, told in document.get(name, {}).items()}
            for name in ("cells", "ablation", "unrolling")
        )
        self.linearise: dict[str, Any] = document.get("linearise", {})
        self.limits: dict[str, Any] = document.get("limits", {})
        self.versions: dict[str, dict[str, str]] = document.get("versions", {})

    def add(self, to: dict[Cell, dict[str, Any]], cell: Cell, told: Mapping[str, Any]) -> None:
        """Keep a cell, in `cells`, `ablation` or `unrolling`; it replaces what was there."""
        measured = datetime.now(timezone.utc).isoformat(timespec="seconds")
        to[cell] = {**told, "measured": measured, "commit": commit()}
        self.write()

    def write(self) -> None:
        """Write the file anew."""
        document = {
            "format": FORMAT,
            "machine": self.machine,
            "versions": self.versions,
            "limits": self.limits,
            "linearise": self.linearise,
            "cells": {cell.key: told for cell, told in self.cells.items()},
            "ablation": {cell.key: told for cell, told in self.ablation.items()},
            "unrolling": {cell.key: told for cell, told in self.unrolling.items()},
        }
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(document, indent=1) + "\n")
        os.replace(unfinished, self._path)
