"""Damaged folders of Spark's models, read in a process of its own.

``python -m tests.frontends.spark.mutants FOLDER COUNT`` changes bytes of files at random. What must come of
it is a graph or a `ModelError`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends import load_model


def main(folder: Path, count: int) -> None:
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "model")
        shutil.copytree(folder, copy)
        files = sorted(path for path in copy.rglob("part-*"))
        for seed in range(count):
            rng = np.random.default_rng(seed)
            path = files[rng.integers(len(files))]
            content = path.read_bytes()
            path.write_bytes(mutant(content, rng))
            try:
                load_model(copy)
                seen["read"] += 1
            except ModelError as error:
                assert str(error).count("\n") == 0
                seen["ModelError"] += 1
            except BaseException:
                print(f"seed {seed}: {path}")
                raise
            path.write_bytes(content)
    print(dict(seen))


def mutant(content: bytes, rng: np.random.Generator) -> bytes:
    """Return changed bytes: some others, some swapped digits, or a part cut out."""
    changed = bytearray(content)
    at = int(rng.integers(len(changed)))
    match int(rng.integers(4)):
        case 0:
            del changed[at : at + int(rng.integers(1, 40))]
        case 1:
            digits = [i for i, byte in enumerate(changed) if 48 <= byte < 58]
            for i in rng.choice(digits, 3) if digits else ():
                changed[i] = 48 + int(rng.integers(10))
        case _:
            for i in rng.integers(len(changed), size=int(rng.integers(1, 6))):
                changed[i] = int(rng.integers(256))
    return bytes(changed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
