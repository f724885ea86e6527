"""The process that tries mutants: ``python -m benchmarks.mutants.child MODULE FOLDER SEED FIRST END``.

On its first output, a pipe, it writes lines of JSON: a mutant's number, then how it ended.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

from hbtvm.errors import HbtvmError

MEMORY = 1 << 30
"""Bytes that mutants may add to the process."""

LONGEST = 2_000
"""Characters of an error's text."""


def main(kind: str, folder: str, seed: str, first: str, end: str) -> None:
    """Try mutants FIRST to END - 1."""
    with os.fdopen(os.dup(1), "w") as out, tempfile.TemporaryFile("w+b") as said:
        # Nobody reads what commands print: a pipe would be full soon.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        crashes = os.dup(2)
        trial = importlib.import_module(kind).trials(Path(folder))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("ignore")

        def tell(what: Any) -> None:
            out.write(json.dumps(what) + "\n")
            out.flush()

        os.dup2(said.fileno(), 2)
        for number in range(int(first), int(end)):
            tell(number)
            said.seek(0)
            said.truncate()
            told = _tried(trial, number, int(seed))
            said.seek(0)
            printed = said.read().decode("utf-8", "replace")
            if "Traceback" in printed or "bug in hbtvm" in printed:
                told = {"fault": f"printed {printed[-1500:]}"}
            tell(told)
        tell("done")
        os.dup2(crashes, 2)


def _tried(trial: Any, number: int, seed: int) -> dict[str, str]:
    try:
        return {"end": trial(number, seed)}
    except HbtvmError as error:
        text = str(error)
        if text.isprintable() and len(text) <= LONGEST:
            return {"end": "refused"}
        return {"fault": f"an error of {len(text):,} characters: {text[:300]!r}"}
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        return {"fault": f"{type(error).__name__} at {place}: {str(error)[:300]}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
