"""The service as an ASGI application: limits, refusals, metrics, and connections that end early."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from hbtvm.serving.app import Service
from hbtvm.serving.bodies import Limits
from hbtvm.serving.http.connection import Connection
from hbtvm.serving.http.connections import Connections, Timeouts
from hbtvm.serving.startup import listen
from tests.serving.asgi import Answer, ask, run, service
from tests.serving.models import CASES, frame, numbers

LIMITS = Limits(body=1 << 18, bodies=1 << 23, waiting=2, inline=1 << 10, seconds=0.05)
AT = "/v2/models/classes/infer"


@pytest.fixture
def app(packages: Path) -> Iterator[Service]:
    made = service({name: packages / f"{name}.tar" for name in ("classes", "pipeline", "words")}, LIMITS)
    yield made
    assert made.account.bytes == 0
    made.close()


def body(rows: np.ndarray, **more: Any) -> bytes:
    tensor = {"name": "input", "shape": list(rows.shape), "datatype": "FP64", "data": rows.tolist()}
    return json.dumps({"inputs": [tensor], **more}).encode()


ONE = body(numbers()[:1])
MANY = body(np.tile(numbers(), (100, 1)))
assert len(ONE) < LIMITS.inline < len(MANY) < LIMITS.body


def metrics(app: Service) -> dict[tuple[str, ...], float]:
    """What Prometheus reads, by name and labels."""
    text = run(ask(app, "GET", "/metrics")).body.decode()
    return {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def wanted(output: str = "predict") -> list[Any]:
    found: list[Any] = CASES["classes"].expected(output).tolist()
    return found


@pytest.mark.parametrize("parts", [1, 2, 50])
def test_bodies_in_parts(app: Service, parts: int) -> None:
    for sent, expected in ((ONE, wanted()[:1]), (MANY, wanted() * 100)):
        step = -(-len(sent) // parts)
        cut = [sent[i : i + step] for i in range(0, len(sent), step)]
        answer = run(ask(app, "POST", AT, cut))
        assert answer.status == 200 and answer.document["outputs"][0]["data"] == expected


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"GZIP", b"identity"])
def test_packed_bodies(app: Service, encoding: bytes) -> None:
    for sent, expected in ((ONE, wanted()[:1]), (MANY, wanted() * 100)):
        packed = {b"gzip": gzip.compress, b"deflate": zlib.compress}.get(encoding.lower(), bytes)(sent)
        answer = run(ask(app, "POST", AT, [packed], [(b"content-encoding", encoding)]))
        assert answer.status == 200 and answer.document["outputs"][0]["data"] == expected


def test_half_precision_missing_values_and_nested_lists(app: Service) -> None:
    rows = numbers().astype(np.float16)
    expected = CASES["classes"].model.predict(rows.astype(np.float32)).tolist()
    tensor = {"name": "input", "shape": [9, 4], "datatype": "FP16", "data": rows.tolist()}
    answer = run(ask(app, "POST", AT, [json.dumps({"inputs": [tensor]}).encode()]))
    assert answer.document["outputs"][0]["data"] == expected
    X = frame()[["age", "job", "pay"]].astype(object)
    X.iloc[::2, 0] = np.nan
    X.iloc[1::2, 1] = None
    tensors = [
        {"name": name, "shape": [9, 1], "datatype": "BYTES" if name == "job" else "FP32",
         "data": [None if one != one else one for one in X[name].tolist()]}
        for name in X
    ]  # fmt: skip
    answer = run(ask(app, "POST", "/v2/models/pipeline/infer", [json.dumps({"inputs": tensors}).encode()]))
    numeric = X.assign(age=X["age"].astype(np.float32), pay=X["pay"].astype(np.float32))
    assert answer.document["outputs"][0]["data"] == CASES["pipeline"].model.predict(numeric).tolist()


def refused(status: int, text: str, answer: Answer) -> None:
    assert answer.status == status and text in answer.error, answer


def test_too_long(app: Service) -> None:
    most = b"%d" % (LIMITS.body + 1)
    refused(413, "262,145 bytes", run(ask(app, "POST", AT, [b""], [(b"content-length", most)])))
    parts = [b" " * 10_000] * 40
    refused(413, "too long", run(ask(app, "POST", AT, parts)))
    packed = gzip.compress(b" " * (LIMITS.body + 1))
    refused(413, "uncompressed", run(ask(app, "POST", AT, [packed], [(b"content-encoding", b"gzip")])))
    assert metrics(app)["hbtvm_requests_total", "classes", "413"] == 3


def test_packing(app: Service) -> None:
    def packed(sent: bytes, encoding: bytes) -> Answer:
        return run(ask(app, "POST", AT, [sent], [(b"content-encoding", encoding)]))

    refused(415, "gzip or deflate", packed(ONE, b"br"))
    refused(400, "not valid gzip", packed(ONE, b"gzip"))
    refused(400, "incomplete", packed(gzip.compress(ONE)[:-3], b"gzip"))
    refused(400, "incomplete", packed(zlib.compress(ONE) + b"x", b"deflate"))


def test_slow_clients(app: Service) -> None:
    """Also one that sends nothing at all after its headers."""
    for parts in ([ONE], [ONE[:9], ONE[9:]], [b" "] * 100):
        answer = run(ask(app, "POST", AT, parts, pause=0.2 if len(parts) < 3 else 0.002))
        refused(408, "more than 0.05 s", answer)
        assert answer.headers[b"connection"] == b"close"
    assert metrics(app)["hbtvm_requests_total", "classes", "408"] == 3


@pytest.mark.parametrize("sent", [b"", ONE[:9]])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_slow_clients_of_a_server(app: Service, new_loop: Any, sent: bytes) -> None:
    """Over a socket, in both event loops; other requests are answered meanwhile."""
    app.limits = replace(LIMITS, seconds=0.5)
    head = f"POST {AT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(ONE)}\r\n\r\n".encode()

    async def serve() -> None:
        clients = Connections(app, app.account, Timeouts(), 9)
        loop = asyncio.get_running_loop()
        listening = listen("127.0.0.1", 0)
        server = await loop.create_server(lambda: Connection(clients, loop), sock=listening)
        address = listening.getsockname()
        slow, slow_out = await asyncio.open_connection(*address)
        slow_out.write(head + sent)
        for _ in range(3):
            quick, quick_out = await asyncio.open_connection(*address)
            quick_out.write(head)
            await asyncio.sleep(0.005)
            quick_out.write(ONE)
            assert (await quick.readline()).startswith(b"HTTP/1.1 200")
            quick_out.close()
        told = await slow.read()  # to the end of the connection
        assert told.startswith(b"HTTP/1.1 408") and b"more than 0.5 s" in told
        slow_out.close()
        server.close()

    loop = new_loop()
    loop.run_until_complete(serve())
    loop.close()


def test_clients_that_go(app: Service) -> None:
    for parts in ([b""], [ONE[:9], b""], [b" " * 5000] * 3):
        assert run(ask(app, "POST", AT, parts, leaves=True)).status == 0
        assert run(ask(app, "POST", AT, parts, leaves=True, pause=0.001)).status == 0
    assert app.account.bytes == 0
    assert run(ask(app, "POST", AT, [ONE])).status == 200


def test_too_many_bytes(app: Service) -> None:
    """Bodies that are on their way are held as far as they have arrived, and never more than the limit."""
    most, limits = 0, replace(LIMITS, bodies=1 << 20)
    app.account.limits = limits

    async def slow(count: int) -> list[Answer]:
        nonlocal most
        parts = [b" " * 50_000] * 5
        asked = [asyncio.ensure_future(ask(app, "POST", AT, parts, pause=0.005)) for _ in range(count)]
        while not all(one.done() for one in asked):
            most = max(most, app.account.bytes)
            await asyncio.sleep(0.001)
        announced = [(b"content-length", b"250000")]
        app.account.bytes += 900_000
        asked.append(asyncio.ensure_future(ask(app, "POST", AT, parts, announced)))
        await asyncio.wait(asked)
        app.account.bytes -= 900_000
        return [one.result() for one in asked]

    answers = run(slow(6))
    assert most <= limits.bodies
    statuses = [one.status for one in answers]
    assert statuses.count(429) >= 2 and set(statuses) == {400, 429} and statuses[-1] == 429
    refused(429, "too much memory", answers[-1])
    assert answers[-1].headers[b"retry-after"] == b"1"


def test_too_many_requests(app: Service) -> None:
    async def at_once() -> list[Answer]:
        return await asyncio.gather(
            *(ask(app, "POST", AT, [MANY]) for _ in range(5)), ask(app, "POST", AT, [ONE])
        )

    answers = run(at_once())
    assert [one.status for one in answers] == [200, 200, 429, 429, 429, 200]
    refused(429, "2 requests are waiting", answers[2])
    found = metrics(app)
    assert found["hbtvm_requests_total", "classes", "429"] == 3
    assert found["hbtvm_waiting_requests",] == 0


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", AT, 405, "need"),
        ("PUT", "/v2", 405, "PUT of '/v2'"),
        ("DELETE", "/v2/models/classes", 405, "DELETE"),
        ("GET", "/v2/repository/index", 405, "need"),
        ("POST", "/v2/repository/models/classes/burn", 404, "nothing at"),
        ("POST", "/v2/repository/models/x/load", 403, "is off; start the service with --allow-model"),
        ("POST", "/v2/models/x/infer", 404, "no model 'x'"),
        ("POST", "/v2/models/classes/versions/9/infer", 404, "has version 1, not '9'"),
        ("POST", "/v2/models/classes/versions//infer", 404, "no model"),
        ("GET", "/v2/models/x/ready", 404, "no model 'x'"),
        ("GET", "/", 404, "nothing at '/'"),
        ("GET", "/v1/models/classes", 404, "nothing at"),
    ],
)
def test_what_there_is_not(app: Service, method: str, path: str, status: int, text: str) -> None:
    answer = run(ask(app, method, path, [ONE]))
    refused(status, text, answer)
    assert (b"allow" in answer.headers) == (status == 405)


def test_unloaded_models_and_a_service_that_stops(app: Service) -> None:
    app.repository.unload("classes")
    refused(503, "classes is not loaded", run(ask(app, "POST", AT, [ONE])))
    assert run(ask(app, "GET", "/v2/models/classes/ready")).status == 503
    assert run(ask(app, "GET", "/v2/health/ready")).status == 200  # it was unloaded on purpose
    app.stopping = True
    assert run(ask(app, "GET", "/v2/health/ready")).status == 503
    assert run(ask(app, "GET", "/v2/health/live")).status == 200


def test_metrics(app: Service) -> None:
    for sent in (ONE, MANY, b"{", body(numbers()[:, :2])):
        run(ask(app, "POST", AT, [sent]))
    run(ask(app, "POST", "/v2/models/classes/versions/1/infer", [ONE]))
    run(ask(app, "POST", "/v2/models/classes/versions/3/infer", [ONE]))
    found = metrics(app)
    assert found["hbtvm_requests_total", "classes", "200"] == 3
    assert found["hbtvm_requests_total", "classes", "400"] == 2
    assert found["hbtvm_requests_total", "classes", "404"] == 1
    assert found["hbtvm_rows_total", "classes"] == 902
    assert found["hbtvm_request_seconds_count", "classes"] == 3
    assert 0 < found["hbtvm_request_seconds_sum", "classes"] < 60
    buckets = [found[one] for one in found if {"hbtvm_request_seconds_bucket", "classes"} < {*one}]
    assert buckets == sorted(buckets) and buckets[-1] == 3
    assert found["hbtvm_loads_total", "words", "loaded"] == 1


def tensor(datatype: str, shape: list[int], data: Any, name: str = "input") -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (None, 'no list of "inputs"'),
        ([], 'no list of "inputs"'),
        ([1], 'an object with a "name"'),
        ([{"name": "input", "shape": [1, 4], "datatype": "FP32"}], 'it has no "data"'),
        ([tensor("FP8", [1, 4], [1] * 4)], "'FP8', expected one of"),
        ([tensor("FP32", [1, 4], 1)], '"data" is a number'),
        ([tensor("FP32", [2, 4], [1] * 4)], "takes 8 values, got 4"),
        ([tensor("FP32", [-1, 4], [1] * 4)], "-1, expected 0 to"),
        ([tensor("FP32", [0, 2**40], [])], "expected 0 to 2,147,483,647"),
        ([tensor("INT8", [1, 4], [1, 2, 3, 400])], "range of INT8"),
        ([tensor("UINT64", [1, 4], [1, 2, 3, -1])], "range of UINT64"),
        ([tensor("INT8", [1, 4], [1, 2, 3, 4.0])], "a number is among its values, expected INT8"),
        ([tensor("BOOL", [1, 4], [True, 1, True, True])], "a number is among"),
        ([tensor("FP32", [1, 4], [1, 2, 3, "4"])], "a text is among its values, expected FP32"),
        ([tensor("INT32", [1, 4], [1, 2, 3, None])], "null is among"),
        ([tensor("FP32", [2, 2], [[1, 2], [3]])], "differ in length"),
        ([tensor("FP32", [2, 2], [[1, 2], 3])], "not all are lists"),
        ([tensor("FP32", [1, 4], [[[1], [2], [3], [4]]])], "a list is among"),
        ([tensor("BYTES", [1, 4], ["1", "2", "3", 4])], "a number is among its values, expected only texts"),
        ([tensor("FP32", [4], [1] * 4)], "expected [rows, 4]"),
        ([tensor("FP32", [1, 4], [1] * 4)] * 2, "occurs twice"),
        ([tensor("FP32", [1, 1], [1], "a"), tensor("FP32", [1, 1], [1], "b")], "without column names"),
        ([tensor("FP32", [0, 4], [])], "at least one row"),
    ],
)
def test_sentences(app: Service, inputs: Any, text: str) -> None:
    refused(400, text, run(ask(app, "POST", AT, [json.dumps({"inputs": inputs}).encode()])))


def test_a_long_text_among_numbers_takes_no_memory(app: Service) -> None:
    """An array of texts of numpy would take that length for each value."""
    sent = json.dumps({"inputs": [tensor("FP32", [1, 4], ["x" * 100_000, *range(10_000)])]}).encode()
    tracemalloc.start()
    refused(400, "a text is among", run(ask(app, "POST", AT, [sent])))
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_lifespan(app: Service) -> None:
    told = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return told.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    run(app({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
