"""Damaged pickles by the thousand, read in a process of their own.

``python -m tests.frontends.fuzz --mutants 10000`` changes pickles of all supported kinds at random
(bytes flipped, parts cut, doubled, exchanged among files, operations put in, lengths and names
changed) and reads each. What must come of it is a model or a `ModelError`; anything else is a fault: another
error, a crash, more than a few seconds, or memory of more than ten times the file and 100 MB.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import os
import pickletools
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends import load_model
from hbtvm.graph.trees import reference
from tests.pickles import RELEASES, release

SECONDS = 10.0
"""Longest that one file may take on a busy machine; most take a few milliseconds."""

ADDRESS_SPACE = 3 << 30
"""Bytes of address space of the reading process, its libraries included."""

OPERATIONS = (
    b"(", b".", b"0", b"1", b"2", b"N", b")", b"]", b"}", b"\x8f", b"R", b"\x81", b"\x92", b"b", b"a", b"e",
    b"s", b"u", b"t", b"l", b"d", b"o", b"\x90", b"\x91", b"\x85", b"\x86", b"\x87", b"\x93", b"\x94",
    b"\x88",
    b"h\x00", b"h\x05", b"q\x01", b"K\x07", b"M\xff\xff", b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 8,
    b"\x8b\xff\xff\xff\x7f", b"\x8c\x02tt", b"X\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 8,
    b"\x96" + b"\xff" * 8,
    b"\x8d" + b"\xff" * 8, b"B\xff\xff\xff\xff", b"C\x00", b"\x97", b"\x98", b"Pid\n", b"Q", b"\x82\x01",
    b"cos\nsystem\n", b"(S'true'\nios\nsystem\n", b"cnumpy\nndarray\n", b"cbuiltins\neval\n",
    b"csklearn.tree._tree\nTree\n", b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n", b"I99999999999999999999\n",
    b"G\x7f\xf0\x00\x00\x00\x00\x00\x00", b"G\x7f\xf8\x00\x00\x00\x00\x00\x00", b"\x80\x05",
    b"\x95" + b"\xff" * 8,
)  # fmt: skip
NUMBERS = (0, 1, 2, 7, 8, 127, 128, 255, 256, 65535, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1)


def samples() -> list[bytes]:
    """Files of all kinds, the compressed ones expanded, and some as they are."""
    found = []
    for name in RELEASES:
        for at, content in enumerate(release(name).files.values()):
            plain = _expanded(content)
            found.append(plain)
            if plain is not content and at % 5 == 0:
                found.append(content)
    return found


def _expanded(content: bytes) -> bytes:
    for start, expand in (
        (b"\x1f\x8b", gzip.decompress), (b"BZh", bz2.decompress), (b"\xfd7zXZ", lzma.decompress),
        (b"]\x00\x00", lzma.decompress), (b"\x78", zlib.decompress),
    ):  # fmt: skip
        if content.startswith(start):
            return expand(content)
    return content


def mutant(number: int, seed: int, files: list[bytes]) -> bytes:
    """A changed file, the same for the same numbers."""
    rng = np.random.default_rng([seed, number])
    content = bytearray(files[rng.integers(len(files))])
    for _ in range(rng.integers(1, 4)):
        _change(content, rng, files)
    return bytes(content)


def _change(content: bytearray, rng: np.random.Generator, files: list[bytes]) -> None:
    if not content:
        return
    at = int(rng.integers(len(content)))
    length = int(min(rng.integers(1, 64), len(content) - at))
    match int(rng.integers(10)):
        case 0:
            for place in rng.integers(len(content), size=rng.integers(1, 9)):
                content[place] ^= 1 << int(rng.integers(8))
        case 1:
            content[at] = int(rng.integers(256))
        case 2:
            del content[at:]
        case 3:
            del content[at : at + length]
        case 4:
            content[at:at] = content[at : at + length] * int(rng.integers(1, 20))
        case 5:
            other = files[rng.integers(len(files))]
            start = int(rng.integers(len(other)))
            content[at : at + length] = other[start : start + int(rng.integers(1, 400))]
        case 6:
            for _ in range(rng.integers(1, 4)):
                content[at:at] = OPERATIONS[rng.integers(len(OPERATIONS))]
        case 7:
            _change_argument(content, rng)
        case 8:
            number = int(NUMBERS[rng.integers(len(NUMBERS))])
            size = int(rng.choice([1, 2, 4, 8]))
            content[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "little")
        case _:
            _change_name(content, rng)


def _operations(content: bytearray) -> list[tuple[Any, Any, int]]:
    """The operations up to where joblib's bytes or the damage begin."""
    found = []
    try:
        for operation, argument, position in pickletools.genops(bytes(content)):
            found.append((operation, argument, position or 0))
    except Exception:
        pass
    return found


def _change_argument(content: bytearray, rng: np.random.Generator) -> None:
    """Another number or length behind an operation, or another operation before it."""
    found = _operations(content)
    if not found:
        return
    _, _, position = found[rng.integers(len(found))]
    if rng.random() < 0.3:
        content[position] = OPERATIONS[rng.integers(len(OPERATIONS))][0]
        return
    number = int(NUMBERS[rng.integers(len(NUMBERS))])
    size = int(rng.choice([1, 2, 4, 8]))
    content[position + 1 : position + 1 + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "little")


def _change_name(content: bytearray, rng: np.random.Generator) -> None:
    """Another string of the same file in place of a string: attributes exchanged."""
    strings = [(p, a) for o, a, p in _operations(content) if isinstance(a, str) and "UNICODE" in o.name]
    if len(strings) < 2:
        return
    position, old = strings[rng.integers(len(strings))]
    new = strings[rng.integers(len(strings))][1]
    start = content.find(old.encode(), position)
    if start >= 0 and len(old) == len(new):
        content[start : start + len(old)] = new.encode()
    elif start == position + 2 and len(new) < 256:
        content[position + 1 : start + len(old)] = bytes([len(new.encode()) & 255]) + new.encode()


@dataclass
class Found:
    """What came of the mutants.

    Attributes
    ----------
    outcomes
        How many gave a model, and each kind of error.
    faults
        What must not be.
    slowest, largest
        Seconds of the slowest file; most bytes of memory beyond ten times a file.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0
    largest: int = 0


def run(mutants: int, seed: int = 0) -> Found:
    """Read mutants in processes of their own, a new one after each crash or hang."""
    found, start = Found(), 0
    while start < mutants and len(found.faults) < 20:
        for line in _lines(
            [sys.executable, "-m", "tests.frontends.fuzz", "--read", str(start), str(mutants), str(seed)]
        ):
            if line.startswith("{"):
                result = json.loads(line)
                start = result["number"] + 1
                found.outcomes[result["outcome"]] += 1
                found.slowest = max(found.slowest, result["seconds"])
                found.largest = max(found.largest, result["beyond"])
                if result["fault"]:
                    found.faults.append(f"mutant {result['number']}: {result['fault']}")
            else:
                found.faults.append(f"mutant {start}: {line}")
                start += 1
    return found


def _lines(command: list[str]) -> Iterator[str]:
    """The lines of a process; the last one says how it ended, if that was wrong."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 6 * SECONDS)
            line = process.stdout.readline() if ready else ""
            if not ready:
                process.kill()
                process.wait()
                yield "hung in native code"
                return
            if not line:
                break
            yield line.strip()
        if process.wait():
            yield f"the process ended with {process.returncode}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"took more than {SECONDS} s")


def read(first: int, last: int, seed: int) -> None:
    """Read mutants here, a line of JSON for each."""
    files = samples()
    signal.signal(signal.SIGALRM, _too_long)
    X = np.linspace(-2, 2, 12).reshape(3, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.pkl")
        path.write_bytes(files[0])
        load_model(path)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        at_first = _memory()
        for number in range(first, last):
            content = mutant(number, seed, files)
            path.write_bytes(content)
            began, fault = time.monotonic(), ""
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                graph = load_model(path)
                outcome = "model"
                if graph.anchor.n_features == X.shape[1]:
                    reference.leaves(graph.anchor, X)
            except ModelError as error:
                outcome = type(error).__name__
                if not str(error).isprintable() or len(str(error)) > 1000:
                    fault = f"unfit for a terminal: {str(error)[:200]!r}"
            except BaseException as error:
                outcome, fault = "fault", f"{type(error).__name__}: {error}"
            signal.setitimer(signal.ITIMER_REAL, 0)
            seconds = time.monotonic() - began
            beyond = _memory() - at_first - 10 * len(content)
            if beyond > 100_000_000:
                fault = fault or f"took {beyond:,} bytes beyond ten times the file"
            result = {
                "number": number,
                "outcome": outcome,
                "fault": fault,
                "seconds": seconds,
                "beyond": beyond,
            }
            print(json.dumps(result), flush=True)


def main() -> int:
    """Run from the shell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--read", nargs=3, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(*arguments.read)
        return 0
    began = time.monotonic()
    found = run(arguments.mutants, arguments.seed)
    print(
        f"{sum(found.outcomes.values())} mutants in {time.monotonic() - began:.0f} s: {dict(found.outcomes)}"
    )
    print(f"slowest {found.slowest:.2f} s, most memory beyond ten times a file {found.largest / 1e6:.1f} MB")
    for fault in found.faults:
        print(f"FAULT {fault}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
