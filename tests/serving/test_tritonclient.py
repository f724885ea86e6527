"""Answers to tritonclient, of models of each kind, by JSON and by binary tensors: equal to the library's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from hbtvm.runtime.model import load
from hbtvm.serving.datatypes import NUMBERS
from tests.serving.conftest import TOKEN, Server
from tests.serving.models import CASES, Rows, numbers


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.address, concurrency=4) as made:
        yield made


def tensors(rows: Rows, inputs: list[dict[str, Any]], binary: bool) -> list[Any]:
    """Rows as the inputs that metadata tells."""
    made = []
    for one in inputs:
        if isinstance(rows, pd.DataFrame):
            found = rows[[one["name"]]].to_numpy() if one["name"] in rows else rows.to_numpy()
        else:
            found = np.array(rows, object) if isinstance(rows, list) else rows
        dtype = {"BYTES": object, "FP32": np.float32, "FP64": np.float64}[one["datatype"]]
        made.append(tensor(one["name"], found.astype(dtype), one["datatype"], binary))
    return made


def tensor(name: str, values: np.ndarray, datatype: str, binary: bool = True) -> Any:
    one = triton.InferInput(name, list(values.shape), datatype)
    one.set_data_from_numpy(values, binary_data=binary)
    return one


def same(found: np.ndarray, wanted: np.ndarray, told: dict[str, Any]) -> None:
    """An output is the library's, and as its metadata tells it."""
    assert found.shape == wanted.shape
    assert told["shape"] == [-1, *wanted.shape[1:]]
    if wanted.dtype.kind in "OU":
        assert told["datatype"] == "BYTES"
        text = [one.decode() if isinstance(one, bytes) else one for one in found.reshape(-1).tolist()]
        assert text == wanted.reshape(-1).tolist()
    else:
        assert told["datatype"] == np_to_triton_dtype(found.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("name", CASES)
def test_answers_and_metadata(client: Any, name: str, binary: bool) -> None:
    case, metadata = CASES[name], client.get_model_metadata(name)
    outputs = {one["name"]: one for one in metadata["outputs"]}
    assert set(outputs) >= set(case.outputs)
    wanted = [triton.InferRequestedOutput(one, binary_data=binary) for one in outputs]
    rows = case.rows()
    for part in (rows, rows[:1]):
        found = client.infer(name, tensors(part, metadata["inputs"], binary), outputs=wanted)
        response = found.get_response()
        assert [one["name"] for one in response["outputs"]] == list(outputs)
        for one in response["outputs"]:
            assert one["datatype"] == outputs[one["name"]]["datatype"]
            assert one["shape"] == [len(part), *outputs[one["name"]]["shape"][1:]]
        for output in case.outputs:
            same(found.as_numpy(output), case.expected(output)[: len(part)], outputs[output])
    # Nothing asked for stands for the first output; the client then asks for bytes.
    plain = client.infer(name, tensors(rows, metadata["inputs"], binary))
    same(
        plain.as_numpy(next(iter(outputs))), case.expected(next(iter(outputs))), next(iter(outputs.values()))
    )


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_packed_bodies(client: Any, packing: str) -> None:
    case = CASES["classes"]
    rows = np.tile(numbers(), (1000, 1)).astype(np.float32)
    for part in (rows[:9], rows):
        found = client.infer(
            "classes",
            [tensor("input", part, "FP32")],
            outputs=[triton.InferRequestedOutput("predict_proba")],
            request_compression_algorithm=packing,
            response_compression_algorithm=packing,
        )
        wanted = np.tile(case.expected("predict_proba"), (len(part) // 9, 1))
        np.testing.assert_allclose(found.as_numpy("predict_proba"), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("datatype", "binary"),
    # (The client has no JSON of FP16.)
    [*((one, True) for one in NUMBERS), *((one, False) for one in NUMBERS if one != "FP16")],
)
def test_types_of_numbers(client: Any, packages: Path, datatype: str, binary: bool) -> None:
    rows = np.abs(numbers()).astype(NUMBERS[datatype])
    found = client.infer(
        "binary",
        [tensor("input", rows, datatype, binary)],
        outputs=[triton.InferRequestedOutput("raw_score", binary_data=binary)],
    ).as_numpy("raw_score")
    # (LightGBM takes no half precision.)
    wanted = CASES["binary"].model.predict(rows.astype(np.float64), raw_score=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert load(packages / "binary.tar").predict(rows.astype(np.float64), "raw").tolist() == found.tolist()


def test_many_clients_at_once(client: Any, server: Server) -> None:
    """Of several models, small requests and such as threads compute."""
    rows = np.tile(numbers(), (500, 1))

    def ask(number: int) -> bool:
        name, output = (("binary", "raw_score"), ("targets", "predict"))[number % 2]
        part = rows[: (1, 9, 4500)[number % 3]]
        with triton.InferenceServerClient(server.address) as own:
            wanted = CASES[name].expected(output)
            for _ in range(8):
                found = own.infer(name, [tensor("input", part, "FP64")], request_id=f"{number}",
                                  outputs=[triton.InferRequestedOutput(output)])  # fmt: skip
                assert found.get_response()["id"] == f"{number}"
                repeated = np.tile(wanted, (500,) + (1,) * (wanted.ndim - 1))[: len(part)]
                np.testing.assert_allclose(found.as_numpy(output), repeated, rtol=1e-5)
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(6)))


def test_health_and_what_there_is(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("words")
    assert client.is_model_ready("words", "1") and not client.is_model_ready("nothing")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "model_repository"]
    assert [one["name"] for one in client.get_model_repository_index()] == list(CASES)
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
        client.get_model_metadata("nothing")
    with pytest.raises(InferenceServerException, match="classes has version 1, not '7'"):
        client.get_model_metadata("classes", "7")
    found = client.infer("classes", [tensor("input", numbers(), "FP64")], model_version="1")
    assert found.get_response()["model_version"] == "1"


def test_refusals_are_sentences(client: Any) -> None:
    for name, rows, text in [
        ("classes", numbers()[:, :2], "expected rows of 4 columns, got 2"),
        ("columns", numbers(), "expected rows of 2 columns, got 4"),
    ]:
        with pytest.raises(InferenceServerException, match=text) as caught:
            client.infer(name, [tensor("input", rows, "FP64")])
        assert caught.value.status() == "400"
    with pytest.raises(
        InferenceServerException, match="has no output 'nothing'; it has: predict, predict_proba"
    ):
        client.infer(
            "classes",
            [tensor("input", numbers(), "FP64")],
            outputs=[triton.InferRequestedOutput("nothing")],
        )


def test_unload_and_load(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="Bearer TOKEN"):
        client.unload_model("scaler")
    token = {"Authorization": f"Bearer {TOKEN}"}
    client.unload_model("scaler", headers=token)
    assert not client.is_model_ready("scaler") and client.is_server_ready()
    with pytest.raises(InferenceServerException, match="model scaler is not loaded"):
        client.infer("scaler", [tensor("input", numbers(), "FP64")])
    state = {one["name"]: one for one in client.get_model_repository_index()}
    assert state["scaler"]["state"] == "UNAVAILABLE" and state["scaler"]["reason"] == "unloaded"
    client.load_model("scaler", headers=token)
    found = client.infer("scaler", [tensor("input", numbers(), "FP64")])
    np.testing.assert_allclose(found.as_numpy("transform"), CASES["scaler"].expected("transform"))
    assert found.get_response()["model_version"] == "2"
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
        client.load_model("nothing", headers=token)
