"""The Open Inference Protocol over HTTP: every datatype, as JSON and as bytes; metadata; models and their versions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.serve.running import RUN, Running, running, written

from openinfer.dtypes import DTYPES
from openinfer.serve import ModelFiles
from openinfer.serve.datatypes import DATATYPES, wire_name

SAMPLES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    **{name: [0, 1, 100] for name in DATATYPES if "INT" in name},
    **{name: [0.5, -2.0, 1.0] for name in ("FP16", "FP32", "FP64", "BF16")},
}
NARROW: dict[str, list[Any]] = {
    **{name: [-1, 1, 1] for name in ("t1", "t2")},
    "i1": [0, -1, 0],
    **{name: [0, 1, -1] for name in ("i2", "i4")},
    **{name: [0, 1, 1] for name in ("u1", "u2", "u4")},
}
"""Values of the dtypes that do not have all of those that they travel as."""
DOUBLE = "dynamic { x: f32[B, 2]; } volatile { y: f32[B, 2]; } block entry { op add(x, x) >> y; return y; }"


def of_every_dtype() -> str:
    """A graph that gives back what it gets from its end, of every dtype."""
    inputs, outputs = (" ".join(f"{side}_{name}: {name}[3];" for name in DTYPES) for side in "xy")
    ops = " ".join(f"op flip(x_{name}, axes=[0]) >> y_{name};" for name in DTYPES)
    returned = ", ".join(f"y_{name}" for name in DTYPES)
    return f"dynamic {{ {inputs} }} volatile {{ {outputs} }} block entry {{ {ops} return {returned}; }}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    written(folder, of_every_dtype(), "dtypes/1/graph.oig")
    for version in (1, 2):
        written(folder, f"sizes {{ B <= 8; }} {DOUBLE}", f"double/{version}/graph.oig")
    written(folder, "block entry { nonsense }", "broken/1/graph.oig")
    with running(folder, RUN) as found:
        yield found


def body(datatype: str, data: Any, shape: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "inputs": [{"name": "x", "shape": [3] if shape is None else shape, "datatype": datatype, "data": data}],
        **more,
    }


def values_of(name: str) -> list[Any]:
    return NARROW.get(name, SAMPLES[wire_name(DTYPES[name])])


def test_every_dtype_goes_both_ways_as_json(server: Running) -> None:
    inputs = [
        {"name": f"x_{name}", "shape": [3], "datatype": wire_name(dtype), "data": values_of(name)}
        for name, dtype in DTYPES.items()
    ]
    assert {one["datatype"] for one in inputs} == DATATYPES.keys()
    outputs = server.ask("/v2/models/dtypes/infer", {"inputs": inputs}).facts["outputs"]
    wanted = [
        {"name": f"y_{name}", "datatype": wire_name(dtype), "shape": [3], "data": values_of(name)[::-1]}
        for name, dtype in DTYPES.items()
    ]
    assert outputs == wanted


def test_every_dtype_goes_both_ways_as_bytes(server: Running) -> None:
    arrays = {name: np.array(values_of(name)).astype(DATATYPES[wire_name(one)]) for name, one in DTYPES.items()}
    inputs = [
        {
            "name": f"x_{name}",
            "shape": [3],
            "datatype": wire_name(DTYPES[name]),
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    raw = b"".join(array.tobytes() for array in arrays.values())
    headers = {"Inference-Header-Content-Length": str(len(head))}
    reply = server.ask("/v2/models/dtypes/infer", head + raw, headers)
    length = int(reply.headers["inference-header-content-length"])
    sizes = [one["parameters"]["binary_data_size"] for one in json.loads(reply.body[:length])["outputs"]]
    assert sizes == [array.nbytes for array in arrays.values()]
    assert reply.body[length:] == b"".join(array[::-1].tobytes() for array in arrays.values())
    assert server.ask("/v2/models/dtypes/infer", head + raw + b"x", headers).facts["code"] == "E901"
    assert server.ask("/v2/models/dtypes/infer", head + raw[:-1], headers).facts["code"] == "E901"


def test_a_server_says_what_it_is_and_what_its_models_take(server: Running) -> None:
    assert server.ask("/v2/health/live").status == 200
    assert server.ask("/v2/health/ready").status == 503, "a model is broken"
    assert server.ask("/v2").facts["name"] == "openinfer"
    facts = server.ask("/v2/models/double").facts
    assert facts["versions"] == ["1", "2"]
    assert facts["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert server.ask("/v2/models/double/versions/1/ready").status == 200
    assert server.ask("/v2/models/double/versions/3/ready").status == 404


def test_the_newest_version_answers_unless_another_is_named(server: Running) -> None:
    request = body("FP32", [1.0, 2.0], [1, 2], id="seven")
    newest, first = (server.ask(f"/v2/models/double{path}/infer", request).facts for path in ("", "/versions/1"))
    assert (newest["model_version"], first["model_version"]) == ("2", "1")
    assert newest["id"] == "seven"
    assert newest["outputs"][0]["data"] == [2.0, 4.0]


def test_the_index_names_what_could_not_be_loaded_and_why(server: Running) -> None:
    index = {one["name"]: one for one in server.ask("/v2/repository/index", {}).facts}
    assert index["broken"]["state"] == "UNAVAILABLE"
    assert index["broken"]["reason"].startswith("E101")
    assert {one["state"] for one in server.ask("/v2/repository/index", {"ready": True}).facts} == {"READY"}


def test_models_are_unloaded_and_loaded(server: Running) -> None:
    request = body("FP32", [1.0, 2.0], [1, 2])
    assert server.ask("/v2/repository/models/double/unload", {}).status == 200
    assert server.ask("/v2/models/double/infer", request).facts["code"] == "E902"
    assert server.ask("/v2/repository/models/double/load", {}).status == 200
    assert server.ask("/v2/models/double/infer", request).status == 200
    for name in ("..", "%2e%2e%2fetc", "nothing"):
        assert server.ask(f"/v2/repository/models/{name}/load", {}).facts["code"] == "E902"
    given = {"parameters": {"file:1/graph.oig": "AAAA"}}
    assert server.ask("/v2/repository/models/double/load", given).facts["code"] == "E901"


def test_metrics_count_answers_by_their_codes(server: Running) -> None:
    server.ask("/v2/models/double/infer", body("FP32", [1.0, 2.0], [1, 2]))
    server.ask("/v2/models/double/infer", body("FP32", [1.0], [1, 2]))
    server.ask("/v2/models/double/infer", body("FP64", [1.0, 2.0], [1, 2]))
    text = server.ask("/metrics").body.decode()
    assert 'openinfer_requests_total{code="ok",model="double",protocol="http",version="2"}' in text
    assert 'code="E307",model="double"' in text
    assert "openinfer_request_seconds_bucket" in text


@pytest.mark.parametrize(
    ("request_body", "code"),
    [
        (b"", "E901"),
        (b"[]", "E901"),
        (b"{" * 100_000, "E901"),
        (b'{"inputs": ' + b"[" * 100_000, "E901"),
        (b'{"inputs": 3}', "E901"),
        (b'{"inputs": [3]}', "E901"),
        (b'{"inputs": []}', "E901"),
        (b"\xff\xfe", "E901"),
        (body("FP32", [1.0, float("nan")], [1, 2]), "E901"),
        (body("FP32", [1.0, "2"], [1, 2]), "E901"),
        (body("FP32", [1.0, None], [1, 2]), "E901"),
        (body("FP32", [[1.0], [2.0, 3.0]], [1, 2]), "E303"),
        (body("FP32", {"a": 1}, [1, 2]), "E901"),
        (body("FP32", [1.0, 2.0], [1, -2]), "E901"),
        (body("FP32", [1.0, 2.0], [1.0, 2.0]), "E901"),
        (body("FP32", [1.0, 2.0], [1, 2] * 40), "E901"),
        (body("FP32", [1.0, 2.0], [2, 1]), "E308"),
        (body("FP32", [1.0] * 18, [9, 2]), "E312"),
        (body("FP32", [1e300, 2.0], [1, 2]), "E302"),
        (body("INT32", [1, 2], [1, 2]), "E307"),
        (body("BYTES", ["a", "b"], [1, 2]), "E901"),
        (body("PICKLE", [1, 2], [1, 2]), "E901"),
        (body("FP32", [1.0, 2.0], [1, 2], outputs=[{"name": "z"}]), "E901"),
        (body("FP32", [1.0, 2.0], [1, 2], id=3), "E901"),
        (body("FP32", [1.0, 2.0], [1, 2], parameters={"timeout": -1}), "E901"),
        (body("FP32", [1.0, 2.0], [1, 2], parameters={"timeout": 1}), "E904"),
        (body("FP32", [1.0, 2.0], [1, 2], parameters={"steps": 2}), "E901"),
        (body("FP32", [1.0, 2.0], [1, 2], parameters={"sequence_start": True}), "E901"),
        ({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 8}}]}, "E901"),
        ({"inputs": [{"name": "w", "shape": [1], "datatype": "FP32", "data": [1]}]}, "E901"),
        ({"inputs": [body("FP32", [1.0, 2.0], [1, 2])["inputs"][0]] * 2}, "E901"),
    ],
)  # fmt: skip
def test_bad_requests_have_codes(server: Running, request_body: Any, code: str) -> None:
    reply = server.ask("/v2/models/double/infer", request_body)
    assert reply.facts["code"] == code, reply.facts
    assert 400 <= reply.status < 600


def test_paths_and_methods_that_do_not_exist_have_a_code_too(server: Running) -> None:
    assert server.ask("/v3").facts["code"] == "E902"
    assert server.ask("/v2/models/double/infer").facts["code"] == "E902"
    assert server.ask("/v2/models/double/infer", b"{}", {"Content-Encoding": "gzip"}).facts["code"] == "E901"


def test_a_graph_with_elements_that_json_cannot_say_says_so(tmp_path: Path) -> None:
    text = "dynamic { x: f32; } volatile { y: f32; } block entry { op recip(x) >> y; return y; }"
    with running(ModelFiles(written(tmp_path, text))) as found:
        reply = found.ask("/v2/models/m/infer", body("FP32", [0.0], []))
        assert (reply.status, reply.facts["code"]) == (400, "E313")
        reply = found.ask("/v2/models/m/infer", body("FP32", [0.0], [], parameters={"binary_data_output": True}))
        assert reply.body.endswith(np.float32(np.inf).tobytes())
