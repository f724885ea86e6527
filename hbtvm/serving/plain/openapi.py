"""The service's OpenAPI document, derived from the loaded models, and the page that shows it."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from hbtvm import __version__
from hbtvm.serving.datatypes import BYTES
from hbtvm.serving.served import Served
from hbtvm.serving.tensors import Tensor

_MOST_VALUES = 50  # maximal number of categories that the document lists for a column

_ERRORS = {
    "400": "The request is invalid; the sentence names the row and the column.",
    "413": "The request or its answer is too large.",
    "429": "The service is busy; try again later.",
    "503": "The model is not loaded.",
}


def openapi(models: Iterable[Served]) -> dict[str, Any]:
    """Return the document (OpenAPI 3.1): a route for each loaded model, and routes of the service."""
    paths: dict[str, Any] = {}
    for served in models:
        paths[f"/v2/models/{served.name}/predict"] = {"post": _predict(served)}
        paths[f"/v2/models/{served.name}"] = {
            "get": _get(f"Inputs and outputs of {served.name}", served.name, f"describe_{served.name}")
        }
    for path, summary in (
        ("/v2/health/live", "Whether the service runs"),
        ("/v2/health/ready", "Whether all models are loaded"),
    ):
        paths[path] = {"get": _get(summary, "service", path.rpartition("/")[2])}
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "hbtvm", "version": __version__, "description": "Predictions of compiled models."},
        "paths": paths,
        "components": {"schemas": {"Error": error}},
    }


def _get(summary: str, tag: str, identity: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "operationId": identity,
        "tags": [tag],
        "responses": {"200": {"description": "A JSON object"}},
    }


def _predict(served: Served) -> dict[str, Any]:
    package = served.model.package
    row = _row(served)
    example = served.rows.example if served.structures is None else served.structures.example
    names = [output.name for output in served.outputs]
    content = {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": row, "minItems": 1},
            "outputs": {
                "type": "array",
                "items": {"type": "string", "enum": names},
                "description": f"Outputs to compute; by default {', '.join(served.outputs_of(()))}.",
            },
        },
        "required": ["rows"],
        "additionalProperties": False,
    }
    prediction: dict[str, Any] = {
        "type": "object",
        "properties": {output.name: _output(output) for output in served.outputs},
    }
    if served.structures is not None and served.structures.over == "nodes":
        prediction = {"type": "array", "items": prediction, "description": "A prediction for each node."}
    answer = {
        "type": "object",
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "predictions": {"type": "array", "items": prediction},
        },
        "required": ["model_name", "model_version", "predictions"],
    }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "summary": f"Predict with {served.name}, a {package.model} of {package.library}",
        "operationId": f"predict_{served.name}",
        "tags": [served.name],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": content, "example": {"rows": [example]}}},
        },
        "responses": {
            "200": {
                "description": "A prediction for each row",
                "content": {"application/json": {"schema": answer}},
            },
            **{code: {"description": text, "content": error} for code, text in _ERRORS.items()},
        },
    }


def _row(served: Served) -> dict[str, Any]:
    """Return the schema of a row."""
    if served.structures is not None:
        return {
            "description": "A structure: nested lists, objects with children, or a text in brackets.",
            "type": ["array", "object", "string", "integer"],
        }
    rows = served.rows
    if isinstance(rows.example, list):
        return {
            "type": "array",
            "items": _value([value for known in rows.known.values() for value in known]),
            "minItems": rows.width,
            "maxItems": rows.width,
        }
    if not isinstance(rows.example, dict) or rows.names is None:
        return _value(rows.known[0])
    columns = {rows.names[at]: _value(known) for at, known in rows.known.items()}
    return {
        "type": "object",
        "properties": columns,
        "required": list(columns),
        "description": "Other columns are ignored if the model's library ignores them.",
    }


def _value(known: Iterable[Any]) -> dict[str, Any]:
    """Return the schema of a column's values; `known`: its categories."""
    values = [value for value in known if value != ""]
    if not any(isinstance(value, str) for value in known):
        return {"type": ["number", "boolean", "null"]}
    schema: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
    if 0 < len(values) <= _MOST_VALUES:
        schema["examples"] = values
    return schema


def _output(output: Tensor) -> dict[str, Any]:
    """Return the schema of an output of a row."""
    kind: dict[str, Any] = {"type": "string" if output.datatype == BYTES else ["number", "boolean", "null"]}
    if output.width is None:
        return kind
    if len(output.labels) == output.width:
        labels = list(output.labels)
        return {"type": "object", "properties": dict.fromkeys(labels, kind), "required": labels}
    return {"type": "array", "items": kind}


@functools.cache
def page() -> tuple[bytes, tuple[bytes, bytes]]:
    """Return the page, and the header that restricts it to its own script and this service."""
    html = resources.files(__package__).joinpath("docs.html").read_bytes()
    sources = []
    for tag in (b"script", b"style"):
        text = re.search(rb"<%b>(.*?)</%b>" % (tag, tag), html, re.DOTALL)
        assert text is not None
        digest = base64.b64encode(hashlib.sha256(text[1]).digest())
        sources.append(b"%b-src 'sha256-%b'" % (tag, digest))
    policy = b"; ".join((b"default-src 'none'; connect-src 'self'; base-uri 'none'", *sources))
    return html, (b"content-security-policy", policy)
