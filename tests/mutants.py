"""Damaged model files, and what the readers make of them.

A program of its own, so that its memory can be limited and a crash is seen:

    python -W error -m tests.mutants json 500 [SEED]

reads so many mutants of the format's samples, and prints how each ended. Anything but a graph or a
`ModelError`, or a read of more than two seconds or beyond the memory limit, ends it with a status of 1.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm import codec
from hbtvm.errors import ModelError
from hbtvm.frontends.catboost import model as catboost_model
from hbtvm.frontends.lightgbm import model as lightgbm_model
from hbtvm.frontends.xgboost import model as xgboost_model
from hbtvm.frontends.xgboost import ubjson
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from tests.by_reference import predict

FILES = Path(__file__).parent / "data" / "files"
MEMORY = 400 << 20
"""Bytes that a reader may add to the process."""

HUGE = [
    "999999999",
    "1000000000000",
    "-1",
    "0",
    "2147483648",
    "1e999",
    "nan",
    "1" * 5000,
    "",
    "x",
    "0.5",
    "16777216",
]
VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**31, 10**9, 10**30, 1.5, 1e308, float("nan"), float("inf"), "", "x", "1000000000",
    "-1", "\x1b[31m" * 50, [], [1], [[]], {}, {"a": 1}, [None], ["x"], [10**9],
]  # fmt: skip


def _document(sample: bytes, rng: random.Random) -> Any:
    """The parsed document with one to three values replaced, removed, or moved."""
    document = json.loads(sample)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, path = document, []
        while isinstance(at, (dict, list)) and at and (not path or rng.random() < 0.8):
            key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            path.append((at, key))
            at = at[key]
        if not path:
            continue
        into, key = path[-1]
        kind = rng.random()
        if kind < 0.7:
            into[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind < 0.85:
            del into[key]
        elif isinstance(into, list):
            into.insert(key, copy.deepcopy(into[key]))
        else:
            into[key] = [into[key]] * 3
    return document


def _ubjson(value: Any) -> bytes:
    """A document in the marks that XGBoost writes."""
    if isinstance(value, dict):
        return b"{" + b"".join(_text(str(key)) + _ubjson(one) for key, one in value.items()) + b"}"
    if isinstance(value, list):
        return b"[#" + b"L" + len(value).to_bytes(8, "big") + b"".join(map(_ubjson, value))
    if isinstance(value, str):
        return b"S" + _text(value)
    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    if isinstance(value, int):
        return b"L" + max(-(2**63), min(value, 2**63 - 1)).to_bytes(8, "big", signed=True)
    return b"D" + struct.pack(">d", value)


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    return b"L" + len(data).to_bytes(8, "big") + data


def _bytes(sample: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, left out, added, or said twice."""
    data = bytearray(sample)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data) + 1)
        size = rng.choice((1, 1, 1, 4, 8, 100))
        match rng.randrange(5):
            case 0:
                data[at : at + size] = rng.randbytes(size)
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = rng.randbytes(size)
            case 3:
                data[at:at] = data[rng.randrange(len(data) + 1) :][:size]
            case 4:
                data[at : at + 1] = bytes([rng.choice((0, 0x7F, 0xFF, 0x80, ord("["), ord("{"), ord("-")))])
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data)


def _in_place(sample: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, or exchanged for others of the file, so that all stays in its place."""
    data = bytearray(sample)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at, size = rng.randrange(len(data) - 8), rng.choice((1, 1, 2, 4))
        kinds = (
            rng.randbytes(size),
            bytes(size),
            b"\xff" * size,
            data[rng.randrange(len(data) - 8) :][:size],
        )
        data[at : at + size] = rng.choice(kinds)
    return bytes(data)


def _words(sample: bytes, rng: random.Random) -> bytes:
    """Some of a text's words replaced, or lines left out or moved."""
    lines = sample.decode().split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        key, equals, value = lines[at].partition("=")
        words = value.split(" ")
        match rng.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 2:
                words.append(rng.choice(HUGE))
                lines[at] = key + equals + " ".join(words)
            case _:
                words[rng.randrange(len(words))] = rng.choice(HUGE)
                lines[at] = key + equals + " ".join(words)
        if not lines:
            return b""
    return "\n".join(lines).encode()


def _half(one: Callable[..., bytes], other: Callable[..., bytes]) -> Callable[..., bytes]:
    return lambda sample, rng: (one if rng.random() < 0.6 else other)(sample, rng)


def _json_mutant(sample: bytes, rng: random.Random) -> bytes:
    return json.dumps(_document(sample, rng)).encode()


def _ubjson_mutant(sample: bytes, rng: random.Random) -> bytes:
    return _ubjson(_document(sample, rng))


FORMATS: dict[str, tuple[str, Callable[..., bytes], Callable[[bytes], Any]]] = {
    "json": ("xgboost-*.json", _half(_json_mutant, _bytes), xgboost_model.from_json),
    "ubjson": ("xgboost-*.json", _half(_ubjson_mutant, lambda s, r: _bytes(_ubjson(json.loads(s)), r)),
               xgboost_model.from_ubjson),
    "text": ("lightgbm-*.txt", _half(_words, _bytes),
             lambda content: lightgbm_model.from_text(content.decode("utf-8", "replace"))),
    "cbm": ("../catboost/*.cbm", _half(_in_place, _bytes), catboost_model.from_bytes),
    "catboost": ("../catboost/*.json", _half(_json_mutant, _bytes), catboost_model.from_bytes),
}  # fmt: skip
"""For each format, its samples, what makes mutants, and what reads them."""


def main(name: str, count: int, seed: int) -> int:
    pattern, mutate, read = FORMATS[name]
    samples = [path.read_bytes() for path in sorted(FILES.glob(pattern))]
    if name == "text":
        samples.append(_with_categories())
    elif pattern.startswith("xgboost"):
        samples.append((FILES.parent / "xgboost_2_1_categories.json").read_bytes())
        vectors = ubjson.loads((FILES.parent / "xgboost_2_1_vector.ubj").read_bytes())
        samples.append(json.dumps(vectors).encode())
    for sample in samples:
        read(_ubjson(json.loads(sample)) if name == "ubjson" else sample)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    rng, ends, slowest, bad = random.Random(seed), Counter[str](), 0.0, 0
    for number in range(count):
        mutant = mutate(rng.choice(samples), rng)
        start = time.process_time()
        try:
            _use(read(mutant))
            ends["read"] += 1
        except ModelError as error:
            ends[type(error).__name__] += 1
            if not str(error).isprintable() or len(str(error)) > 2_000:
                bad += 1
                print(f"mutant {number}: {str(error)[:300]!r}")
        except BaseException as error:
            ends[type(error).__name__] += 1
            bad += 1
            print(f"mutant {number}: {''.join(traceback.format_exception(error))[-1500:]}")
        took = time.process_time() - start
        slowest = max(slowest, took)
        if took > 2:
            bad += 1
            print(f"mutant {number} took {took:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{name}: {dict(ends)}, slowest {slowest:.2f} s, peak {peak} MB, {bad} bad")
    return 1 if bad else 0


def _use(graph: Graph) -> None:
    """What was read can be kept, and predicts."""
    assert codec.read(InputSpec, json.loads(json.dumps(codec.write(graph.input)))) == graph.input
    written = codec.write(graph.output)
    assert codec.write(codec.read(OutputSpec, json.loads(json.dumps(written)))) == written
    if graph.input.n_features < 1_000:
        with np.errstate(all="ignore"):
            # Integers are categories, too.
            predict(graph, np.ones((2, graph.input.n_features), int if graph.feeds else float))


def _with_categories() -> bytes:
    """A text with categories, as the newest LightGBM writes it."""
    # Here, since the other formats need neither.
    import lightgbm as lgb
    import pandas as pd

    rng = np.random.default_rng(1)
    codes = rng.integers(0, 5, 200)
    X = pd.DataFrame({"a": rng.normal(size=200), "k": pd.Categorical.from_codes(codes, list("vwxyz"))})
    X["o"] = pd.Categorical.from_codes(rng.integers(0, 3, 200), [3, 1, 2], ordered=True)
    options = {"verbose": -1, "num_leaves": 6, "cat_smooth": 1, "min_data_per_group": 5, "num_threads": 1}
    booster = lgb.train(options, lgb.Dataset(X, X["a"] + np.cos(codes)), 4)
    return str(booster.model_to_string()).encode()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0))
