"""Rows and predictions in plain JSON, the OpenAPI document, and recursive models."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.runtime.recursive.vocabulary import Vocabulary
from hbtvm.serving.app import Service
from hbtvm.serving.bodies import Limits
from tests.serving.asgi import Answer, ask, run, service
from tests.serving.models import CASES, ROWS, frame
from tests.serving.test_fuzz import _ODD as ODD

LIMITS = Limits(body=1 << 20, bodies=1 << 24, inline=1 << 10)
ROW = {"age": 1.5, "pay": -2, "job": "law", "plan": None}
WORDS = ("not", "very", "good", "works", "it", "unk")
TREES: list[Any] = [["not", ["very", "good"]], ["it", "works"], "good", [["it", "it"], "not"]]


@pytest.fixture(scope="module")
def app(packages: Path) -> Iterator[Service]:
    application = service({name: packages / f"{name}.tar" for name in CASES}, LIMITS)
    yield application
    assert application.account.bytes == 0
    application.close()


def post(app: Service, model: str, content: Any, *headers: tuple[bytes, bytes]) -> Answer:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    length = (b"content-length", b"%d" % len(body))
    return run(ask(app, "POST", f"/v2/models/{model}/predict", [body], [length, *headers]))


def json_rows(name: str) -> list[Any]:
    rows = CASES[name].rows()
    if isinstance(rows, pd.DataFrame):
        records: list[Any] = rows.to_dict("records")
        return records
    return rows if isinstance(rows, list) else rows.tolist()


@pytest.mark.parametrize("repeats", [1, 700], ids=["event-loop", "thread"])
@pytest.mark.parametrize("name", CASES)
def test_predictions_are_the_librarys(app: Service, name: str, repeats: int) -> None:
    case, rows = CASES[name], json_rows(name)
    answer = post(app, name, {"rows": rows * repeats, "outputs": list(case.outputs)})
    assert answer.status == 200, answer.error
    predictions = answer.document["predictions"]
    assert len(predictions) == repeats * ROWS
    for output in case.outputs:
        values = [prediction[output] for prediction in predictions]
        if isinstance(values[0], dict):
            values = [list(value.values()) for value in values]
        expected = np.concatenate([case.expected(output)] * repeats)
        if expected.dtype.kind in "OU":
            assert values == expected.tolist()
        else:
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-7)


def test_probabilities_have_the_names_of_classes(app: Service) -> None:
    answer = post(app, "pipeline/versions/1", {"rows": [ROW]})
    assert list(answer.document) == ["model_name", "model_version", "predictions"]
    (prediction,) = answer.document["predictions"]
    library = CASES["pipeline"].model
    expected = library.predict_proba(pd.DataFrame([ROW]))[0]
    assert prediction["predict"] == library.predict(pd.DataFrame([ROW]))[0]
    assert list(prediction["predict_proba"]) == library.classes_.tolist()
    np.testing.assert_allclose(list(prediction["predict_proba"].values()), expected, rtol=1e-6)


def test_missing_values_and_other_columns(app: Service) -> None:
    rows = [{**ROW, "age": None, "job": None, "another": [1, 2]}, {**ROW, "pay": True}]
    assert "column 'another'" in post(app, "pipeline", {"rows": rows}).error
    del rows[0]["another"]
    known = pd.DataFrame(rows).assign(pay=[-2.0, 1.0])
    expected = CASES["pipeline"].model.predict_proba(known)
    answer = post(app, "pipeline", {"rows": rows, "outputs": ["predict_proba"]})
    found = [list(prediction["predict_proba"].values()) for prediction in answer.document["predictions"]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "content", "status", "text"),
    [
        ("pipeline", b"{", 400, "not JSON"),
        ("pipeline", [ROW], 400, 'no list of "rows"'),
        ("pipeline", {"rows": ROW}, 400, 'no list of "rows"'),
        ("pipeline", {"rows": []}, 400, "at least one row"),
        ("pipeline", {"rows": [ROW], "threads": 1}, 400, "'threads'"),
        ("pipeline", {"rows": [ROW], "outputs": "predict"}, 400, "not a list of names"),
        ("pipeline", {"rows": [ROW], "outputs": ["predict"] * 2}, 400, "twice"),
        ("pipeline", {"rows": [ROW], "outputs": ["raw"]}, 400, "no output 'raw'; it has: predict,"),
        ("pipeline", {"rows": [ROW, {"age": 1}]}, 400, "is missing in row 1"),
        ("pipeline", {"rows": [{**ROW, "age": "old"}]}, 400, "column 'age': expected a number, got 'old'"),
        ("pipeline", {"rows": [{**ROW, "age": {"years": 3}}]}, 400, "row 0, column 'age'"),
        ("pipeline", {"rows": [ROW, [1, 2, 3]]}, 400, "should be an object"),
        ("pipeline", {"rows": [ROW] * 3000 + [{}]}, 400, "is missing"),
        ("classes", {"rows": [ROW]}, 400, "a list of 4 values: this model was trained without column names"),
        ("classes", {"rows": [[1, 2, 3]]}, 400, "row 0 has 3 values, expected 4"),
        ("classes", {"rows": [[1, 2, 3, "x"]]}, 400, "expected numbers, got 'x'"),
        ("classes", {"rows": [[1, 2, 3, [4]]]}, 400, "an object or a list"),
        ("words", {"rows": [["good"]]}, 400, "where a text is expected"),
        ("words", {"rows": [None]}, 400, "expected a text"),
        ("nothing", {"rows": [ROW]}, 404, "no model 'nothing'"),
        ("pipeline/versions/2", {"rows": [ROW]}, 404, "version 1, not '2'"),
        ("pipeline", {"rows": ["x" * LIMITS.body]}, 413, "the limit is"),
    ],
)  # fmt: skip
def test_sentences(app: Service, model: str, content: Any, status: int, text: str) -> None:
    answer = post(app, model, content)
    assert answer.status == status and text in answer.error, answer


def test_limits_access_and_metrics_are_those_of_tensors(packages: Path) -> None:
    app = service({"classes": packages / "classes.tar"}, LIMITS)
    rows = {"rows": [[1, 2, 3, 4]] * 3000}
    packed = gzip.compress(json.dumps(rows).encode())
    assert post(app, "classes", packed, (b"content-encoding", b"gzip")).status == 200
    assert post(app, "classes", rows, (b"content-type", b"text/plain")).status == 415
    assert post(app, "classes", rows, (b"host", b"evil.example")).status == 403
    assert post(app, "classes", rows, (b"inference-header-content-length", b"9")).status == 400
    assert run(ask(app, "GET", "/v2/models/classes/predict")).status == 405
    app.account.bytes += LIMITS.bodies - 400_000
    assert post(app, "classes", rows).status == 429
    app.account.bytes = 0
    app.repository.unload("classes")
    assert post(app, "classes", rows).status == 503
    text = run(ask(app, "GET", "/metrics")).body.decode()
    assert 'hbtvm_rows_total{model="classes"} 3000.0' in text
    for status, count in ((200, 1), (400, 1), (403, 1), (415, 1), (429, 1), (503, 1)):
        assert f'hbtvm_requests_total{{model="classes",status="{status}"}} {count}.0' in text
    app.close()


def test_odd_rows_are_refused_in_a_sentence(app: Service) -> None:
    rng = random.Random(0)
    statuses: dict[int, int] = {}
    for _ in range(1500):
        name = rng.choice(("pipeline", "classes", "words", "encoder", "columns"))
        rows: list[Any] = rng.choices(json_rows(name), k=rng.randrange(1, 4))
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(rows))
            row = rows[at]
            if isinstance(row, dict) and rng.random() < 0.8:
                rows[at] = {**row, rng.choice([*row, "x"]): rng.choice(ODD)}
            elif isinstance(row, list) and rng.random() < 0.8:
                rows[at] = [rng.choice((value, value, rng.choice(ODD))) for value in row]
            else:
                rows[at] = rng.choice(ODD)
        answer = post(app, name, {"rows": rows})
        assert answer.status in (200, 400), (rows, answer.body)
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
    assert min(statuses[200], statuses[400]) > 200


def test_the_openapi_document(app: Service) -> None:
    """Its examples are answered in the form that it states."""
    document = run(ask(app, "GET", "/openapi.json")).document
    assert document["openapi"] == "3.1.0"
    paths = document["paths"]
    identities = [operation["operationId"] for item in paths.values() for operation in item.values()]
    assert len(set(identities)) == len(identities)
    for name in CASES:
        operation = paths[f"/v2/models/{name}/predict"]["post"]
        body = operation["requestBody"]["content"]["application/json"]
        outputs = body["schema"]["properties"]["outputs"]["items"]["enum"]
        assert set(outputs) >= set(CASES[name].outputs)
        answer = post(app, name, {**body["example"], "outputs": outputs})
        assert answer.status == 200, answer.error
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        fits(answer.document, schema)
        fits(body["example"], body["schema"])
        fits({"error": ""}, document["components"]["schemas"]["Error"])
    body = paths["/v2/models/pipeline/predict"]["post"]["requestBody"]["content"]["application/json"]
    columns = body["schema"]["properties"]["rows"]["items"]["properties"]
    assert list(columns) == ["age", "job", "pay"]
    assert set(columns["job"]["examples"]) == set(frame(200)["job"])
    app.repository.unload("scaler")
    document = run(ask(app, "GET", "/openapi.json")).document
    assert "/v2/models/scaler/predict" not in document["paths"]
    app.repository.load("scaler")


def fits(value: Any, schema: dict[str, Any]) -> None:
    """Check a value against the part of JSON Schema that the document uses."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = names.get(type(value), "number")
    assert kind in kinds or (kind == "number" and "integer" in kinds), (value, schema)
    if kind == "object":
        properties = schema.get("properties", {})
        assert set(schema.get("required", ())) <= set(value)
        assert schema.get("additionalProperties", True) or set(value) <= set(properties)
        for name in set(value) & set(properties):
            fits(value[name], properties[name])
    if kind == "array" and "items" in schema:
        assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        for item in value:
            fits(item, schema["items"])


@rec.cell(children=2, state={"h": 4}, inputs={"word": rec.embedding("words", optional=True)})
def cell(node, w):  # type: ignore[no-untyped-def]
    """What compiles quickly."""
    return {"h": rec.tanh(w.U @ rec.total(node.children.h) + node.word)}


@pytest.fixture(scope="module")
def recursive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, hbtvm.Model]]]:
    folder, rng = tmp_path_factory.mktemp("recursive"), np.random.default_rng(1)
    weights = {
        "U": rng.normal(size=(4, 4)),
        "words": rng.normal(size=(6, 4)),
        "head.weight": rng.normal(size=(2, 4)),
    }
    head = rec.roots("h") | rec.linear("head") | rec.softmax()
    models = {}
    for name, output, more in (
        ("trees", head, {"classes": ("bad", "fine"), "vocabulary": Vocabulary(WORDS)}),
        ("nodes", rec.nodes("h"), {}),
    ):
        models[name] = hbtvm.compile(rec.Model(cell, weights, output, **more), batch_sizes=(4,), threads=1)
        models[name].save(folder / f"{name}.tar")
    app = service({name: folder / f"{name}.tar" for name in models}, LIMITS)
    yield app, models
    assert app.account.bytes == 0
    app.close()


def test_recursive_models(recursive: tuple[Service, dict[str, hbtvm.Model]]) -> None:
    app, models = recursive
    trees = rec.trees(TREES, list(WORDS))
    flat = {"children": [[], [], [0, 1], [], [2, 3]], "inputs": {"word": ["it", "it", None, "not", None]}}
    for rows in (TREES, [*TREES[:3], flat], ["(not (very good))", "(it works)", "good", "((it it) not)"]):
        answer = post(app, "trees", {"rows": rows})
        assert answer.status == 200, answer.error
        found = [list(prediction["predict_proba"].values()) for prediction in answer.document["predictions"]]
        np.testing.assert_allclose(found, models["trees"].predict_proba(trees), rtol=1e-6)
        labels = [prediction["predict"] for prediction in answer.document["predictions"]]
        assert labels == models["trees"].predict(trees).tolist()
    # So many that a thread computes them in blocks.
    answer = post(app, "trees", {"rows": TREES * 100, "outputs": ["predict"]})
    assert [prediction["predict"] for prediction in answer.document["predictions"]] == labels * 100

    numbers = [[0, [1, 2]], 2]
    answer = post(app, "nodes", {"rows": numbers})
    expected = models["nodes"].predict(rec.trees(numbers))
    groups = answer.document["predictions"]
    assert list(map(len, groups)) == [5, 1]
    found = [node["predict"] for group in groups for node in group]
    np.testing.assert_allclose(found, expected, rtol=1e-6)

    for model, wrong, text in (
        ("trees", ["good", "bad"], "structure 1, node 0: 'bad' is not in the vocabulary"),
        ("trees", ["(not (very good)"], "structure 0: 1 brackets are open"),
        ("trees", [["it", "it", "it"]], "it has 3 children; the model takes 2 at most"),
        ("trees", [{"children": [[], []], "inputs": {"word": ["it", "it"]}}], "structure 0: it has 2 roots"),
        ("trees", [], "at least one structure"),
        ("nodes", [7], "expected a number from 0 to 5"),
        ("nodes", [1.5], "expected a word or a whole number"),
    ):
        answer = post(app, model, {"rows": wrong})
        assert answer.status == 400 and text in answer.error, answer
    answer = post(app, "trees", b'{"rows": [' + b"[" * 2000 + b'"it"' + b"]" * 2000 + b"]}")
    assert answer.status == 400 and "not JSON" in answer.error
    tensor = {"name": "input", "shape": [1], "datatype": "BYTES", "data": ["good"]}
    answer = run(ask(app, "POST", "/v2/models/trees/infer", [json.dumps({"inputs": [tensor]}).encode()]))
    assert answer.status == 400 and "/v2/models/trees/predict" in answer.error

    document = run(ask(app, "GET", "/openapi.json")).document
    for name in models:
        operation = document["paths"][f"/v2/models/{name}/predict"]["post"]
        example = operation["requestBody"]["content"]["application/json"]["example"]
        answer = post(app, name, example)
        assert answer.status == 200, answer.error
        fits(answer.document, operation["responses"]["200"]["content"]["application/json"]["schema"])
    assert run(ask(app, "GET", "/v2/models/trees")).document["inputs"] == []
