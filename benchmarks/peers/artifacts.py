"""What peers made of models, kept from run to run: some compile for minutes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.libraries import Job


class Artifacts:
    """A folder of artifacts, by model, peer and versions.

    Parameters
    ----------
    folder
        Made when something is kept.
    versions
        Of each peer's packages, see `libraries.versions`.
    """

    def __init__(self, folder: Path, versions: Mapping[str, Mapping[str, str]]) -> None:
        self._folder, self._versions = folder, versions

    def find(self, job: Job, limit: float) -> dict[str, Any] | None:
        """Put a kept artifact where the job wants it.

        Parameters
        ----------
        limit
            Seconds that the peer may take; one that has failed within fewer is to try again.

        Returns
        -------
        What `keep` was told; None if there is no artifact.
        """
        kept = self._place(job)
        try:
            figures: dict[str, Any] = json.loads((kept / "figures.json").read_text())
        except OSError:
            return None
        if "failed" in figures:
            return figures if figures.pop("limit") >= limit else None
        shutil.copyfile(kept / "artifact", job.artifact)
        return figures

    def keep(self, job: Job, figures: Mapping[str, Any], limit: float) -> None:
        """Keep a job's artifact with its figures, or that there is none within so many seconds."""
        kept = self._place(job)
        kept.mkdir(parents=True, exist_ok=True)
        if "failed" in figures:
            figures = {**figures, "limit": limit}
        else:
            shutil.copyfile(job.artifact, kept / "artifact")
        # Last, and whole or not at all: it is what says that the artifact is there.
        unfinished = kept / "figures.unfinished"
        unfinished.write_text(json.dumps(figures))
        os.replace(unfinished, kept / "figures.json")

    def _place(self, job: Job) -> Path:
        model = Path(job.path).parent.name  # tells the recipe, too: see `train.trained`
        mark = json.dumps([self._versions.get(job.peer), job.dtype], sort_keys=True)
        return self._folder / f"{model}-{job.peer}-{hashlib.sha256(mark.encode()).hexdigest()[:10]}"
