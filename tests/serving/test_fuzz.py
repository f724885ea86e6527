"""Malformed requests, made at random: each is refused by a sentence or answered, and harms none after it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.runtime.model import load
from hbtvm.runtime.package.file import write
from hbtvm.serving.app import Service
from hbtvm.serving.bodies import Limits
from tests.runtime.test_pipeline_model import packed
from tests.runtime_models import compiled
from tests.serving.asgi import Answer, ask, run, service

REQUESTS = 10_000

_ODD: list[Any] = [
    None, True, False, 0, 1, -1, 3, 4, 2**31, 2**63, 2**64 - 1, 2**64, 2**70, -(2**63), 1.5, 1e308, -1e400,
    "", "x", "FP32", "BYTES", "\0", "é", "💥", "a" * 5000, [], [[]], [None], [1, [2]], {}, {"x": 1},
    float("nan"), float("inf"), [[[[1]]]], [1, "a"], [[1, 2], [3]],
]  # fmt: skip

_DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64",
    "BYTES", "fp32", "INT", "", "FP128",
)  # fmt: skip

_SIZES = {"BOOL": 1, "8": 1, "16": 2, "32": 4, "64": 8}


def _tensor(rng: random.Random, name: str, columns: int) -> tuple[dict[str, Any], bytes]:
    """A tensor that is mostly right, and its bytes, if they follow the JSON."""
    rows = rng.choice((0, 1, 1, 2, 3, 40))
    datatype = rng.choice(_DATATYPES) if rng.random() < 0.5 else "FP32"
    shape: Any = [rows, columns]
    if rng.random() < 0.1:
        shape = rng.choice(([rows], [rows, columns, 1], [columns, rows], [2**63, 0], [2**64 - 1, 0], [0, 0]))
    told: dict[str, Any] = {"name": name, "shape": shape, "datatype": datatype}
    count = rows * columns
    if rng.random() < 0.4:
        size = next((n for end, n in _SIZES.items() if datatype.endswith(end)), 4)
        tail = rng.randbytes(count * size)
        if datatype == "BYTES":
            tail = b"".join(
                len(one).to_bytes(4, "little") + one
                for one in (rng.choice((b"", b"law", b"\xff", "é".encode())) for _ in range(count))
            )
        if rng.random() < 0.2:
            tail = tail[: rng.randrange(len(tail) + 1)] + rng.randbytes(rng.randrange(3))
        told["parameters"] = {"binary_data_size": len(tail) + rng.choice((0, 0, 0, 0, 1, -1, 10**6, 2**63))}
        return told, tail
    values: list[Any] = [rng.choice((0, 1, -1.5, 3e38, 1e39, 255, 256)) for _ in range(count)]
    if datatype == "BYTES":
        values = [rng.choice(("law", "tech", "", "é")) for _ in range(count)]
    if rng.random() < 0.2 and values:
        values[rng.randrange(len(values))] = rng.choice(_ODD)
    told["data"] = values
    if columns > 1 and rng.random() < 0.2:
        told["data"] = [values[i : i + columns] for i in range(0, len(values), columns)]
    return told, b""


def _request(rng: random.Random, name: str) -> tuple[dict[str, Any], bytes]:
    if name == "columns":
        names = [("age", 1), ("pay", 1), ("job", 1), ("note", 1), ("input", 4)]
        chosen = names[:4] if rng.random() < 0.7 else rng.choices(names, k=rng.randrange(5))
    else:
        chosen = [("input", 4)]
    made = [_tensor(rng, *one) for one in chosen]
    told: dict[str, Any] = {"inputs": [one for one, _ in made]}
    if rng.random() < 0.2:
        told["id"] = rng.choice(("1", 1, None))
    if rng.random() < 0.3:
        wanted = ("predict", "predict_proba", "raw_score", "x", "", 1)
        told["outputs"] = [
            {"name": rng.choice(wanted), "parameters": rng.choice(({}, {"binary_data": True}, None, 1))}
            for _ in range(rng.randrange(3))
        ]
    if rng.random() < 0.2:
        told["parameters"] = rng.choice(({"binary_data_output": True}, {}, {"x": 1}, None, 3))
    return told, b"".join(tail for _, tail in made)


def _mutated(rng: random.Random, value: Any) -> Any:
    """The same JSON with something odd in some place."""
    if rng.random() < 0.15 or not isinstance(value, (dict, list)) or not value:
        return rng.choice(_ODD)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {one: inner for one, inner in value.items() if one != key}
        return {**value, key: _mutated(rng, value[key])}
    at = rng.randrange(len(value))
    if rng.random() < 0.1:
        return [*value, value[at]]
    return [*value[:at], _mutated(rng, value[at]), *value[at + 1 :]]


def _noise(rng: random.Random, body: bytes) -> bytes:
    made = bytearray(body)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(made) + 1)
        made[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
    return bytes(made)


def _deep(rng: random.Random) -> bytes:
    depth = rng.choice((10, 200, 1023, 1024, 5000))
    value = b"[" * depth + rng.choice((b"", b"1")) + b"]" * rng.choice((depth, depth, depth - 1))
    return b'{"inputs":[{"name":"input","shape":[1,4],"datatype":"FP32","data":%s}]}' % value


_HEADERS: list[Callable[[random.Random, int], tuple[bytes, bytes]]] = [
    lambda rng, n: (b"content-length", rng.choice((b"%d" % n, b"-1", b"x", b"", b"9" * 30, b"1e3", b"\xb2"))),
    lambda rng, n: (b"content-length", b"%d" % rng.choice((0, n + 1, 10**9, 10**17))),
    lambda rng, n: (b"content-encoding", rng.choice((b"gzip", b"deflate", b"br", b"identity", b"\xff"))),
    lambda rng, n: (b"inference-header-content-length", b"%d" % rng.randrange(n + 2)),
    lambda rng, n: (b"inference-header-content-length", rng.choice((b"", b"-5", b"9" * 40, b"\xc2\xb2"))),
    lambda rng, n: (b"content-type", rng.choice((b"text/plain", b"application/octet-stream"))),
]


def _made(rng: random.Random, name: str) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """Parts of a body, and headers."""
    told, tail = _request(rng, name)
    kind = rng.random()
    if kind < 0.35:
        told = _mutated(rng, told)
    head = _deep(rng) if kind > 0.97 else json.dumps(told).encode()
    body = head + tail
    headers = []
    if tail or rng.random() < 0.05:
        headers.append((b"inference-header-content-length", b"%d" % len(head)))
    if 0.35 <= kind < 0.45:
        body = _noise(rng, body)
    if 0.45 <= kind < 0.5:
        body = rng.randbytes(rng.randrange(100))
    if rng.random() < 0.2:
        headers.append(rng.choice(_HEADERS)(rng, len(body)))
    if rng.random() < 0.2:
        at = rng.randrange(len(body) + 1)
        return [body[:at], body[at:]], headers
    return [body], headers


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Service:
    folder = tmp_path_factory.mktemp("fuzz")
    write(compiled("sk_hist_three"), folder / "numbers.tar")
    write(packed(), folder / "columns.tar")
    return service(
        {name: folder / f"{name}.tar" for name in ("numbers", "columns")}, Limits(body=1 << 16, seconds=1.0)
    )


def _right(answer: Answer, name: str) -> None:
    told = answer.document
    assert told["model_name"] == name and told["outputs"]
    for one in told["outputs"]:
        assert one["shape"][0] >= 1
        if "data" in one:
            assert len(one["data"]) == np.prod(one["shape"])


def test_malformed_requests(app: Service) -> None:
    rng = random.Random(5)
    statuses: dict[int, int] = {}

    async def all_of_them() -> None:
        for _ in range(REQUESTS):
            name = rng.choice(("numbers", "columns"))
            parts, headers = _made(rng, name)
            answer = await ask(app, "POST", f"/v2/models/{name}/infer", parts, headers)
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            if answer.status == 200:
                _right(answer, name)
            else:
                assert 400 <= answer.status < 500, (answer, parts, headers)
                assert len(answer.error) > 10, (answer, parts, headers)
        X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
        tensor = {"name": "input", "shape": [3, 4], "datatype": "FP32", "data": X.tolist()}
        answer = await ask(
            app, "POST", "/v2/models/numbers/infer", [json.dumps({"inputs": [tensor]}).encode()]
        )
        wanted = load(Path(app.repository.served["numbers"].path)).predict(X)
        assert answer.document["outputs"][0]["data"] == wanted.tolist()

    run(all_of_them())
    # Both sides are tried: what is right as well as what is not.
    assert statuses[200] > REQUESTS / 20 and statuses[400] > REQUESTS / 3, statuses
    assert app.account.bytes == 0


@pytest.mark.parametrize("seed", range(3))
def test_paths_and_methods(app: Service, seed: int) -> None:
    rng = random.Random(seed)
    words = ["v2", "models", "numbers", "nothing", "infer", "ready", "versions", "1", "2", "", "health",
             "live", "repository", "index", "é", "\0", "..", "a" * 300, "metrics", "\udcff"]  # fmt: skip

    async def all_of_them() -> None:
        for _ in range(500):
            path = "/" + "/".join(rng.choices(words, k=rng.randrange(7)))
            if rng.random() < 0.5:
                path = "/v2/models/numbers/" + path[1:]
            method = rng.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"))
            answer = await ask(app, method, path)
            assert answer.status < 500, (method, path, answer)
            if answer.status >= 400:
                assert answer.error

    run(all_of_them())
