"""A predictor as a deployment of Ray Serve, by its handle and over HTTP. ``make test-serve`` installs Ray."""

import json
import socket
import warnings
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import numpy as np
import pytest
import ray
from tests.scale.test_batch import graph

from openinfer.errors import BatchError

with warnings.catch_warnings(action="ignore"):  # Ray's own
    from ray import serve

    from openinfer.scale.ray_serve import PredictorDeployment

pytestmark = pytest.mark.filterwarnings("ignore")
INVERSE = "dynamic { x: f32[2]; } volatile { y: f32[2]; } block entry { op recip(x) >> y; return y; }"
GIVEN = {"x": [[1.0, 2.0]] * 11, "k": list(range(11)), "id": [f"row {number}" for number in range(11)]}
WANTED = {"id": GIVEN["id"], "y": [[2.0, 4.0]] * 11, "n": list(range(1, 12))}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Two applications on this machine, whose replicas keep no core for themselves."""
    folder = tmp_path_factory.mktemp("graphs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": found})
    deployment = PredictorDeployment.options(num_replicas=2, ray_actor_options={"num_cpus": 0})
    serve.run(deployment.bind(graph(folder)), name="rows", route_prefix="/rows")
    (folder / "other").mkdir()
    single = deployment.options(num_replicas=1).bind(graph(folder / "other", INVERSE), columns={"x": "values"})
    serve.run(single, name="inverse", route_prefix="/inverse")
    yield found
    serve.shutdown()
    ray.shutdown()


def ask(port: int, path: str, body: Any) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_columns_go_in_and_out_as_json(port: int) -> None:
    assert ask(port, "/rows", GIVEN) == (200, WANTED)
    assert ask(port, "/inverse", {"values": [[1.0, 4.0]]}) == (200, {"y": [[1.0, 0.25]]})


def test_a_handle_takes_and_gives_arrays(port: int) -> None:
    del port
    handle = serve.get_app_handle("rows")
    calls = [handle.remote({"x": np.full((3, 2), number, np.float32), "k": np.arange(3)}) for number in range(20)]
    for number, call in enumerate(calls):
        found = call.result(timeout_s=120)
        assert found["y"].dtype == np.float32
        assert np.array_equal(found["y"], np.full((3, 2), 2 * number))
        assert np.array_equal(found["n"], [1, 2, 3])


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/rows", b"{", "E909"),
        ("/rows", b"[" * 100_000, "E909"),
        ("/rows", b"[1]", "E909"),
        ("/rows", b'{"x": NaN}', "E909"),
        ("/rows", {"x": [[1.0, 2.0]]}, "E909"),
        ("/rows", {"x": 1, "k": 1}, "E909"),
        ("/rows", {"x": [[1.0]], "k": [1]}, "E308"),
        ("/inverse", {"values": [[0.0, 1.0]]}, "E313"),
    ],
)
def test_what_is_wrong_with_a_request_has_a_code(port: int, path: str, body: Any, code: str) -> None:
    status, facts = ask(port, path, body)
    assert (status, facts["code"]) == (400, code), facts


def test_an_error_reaches_who_calls_a_handle(port: int) -> None:
    del port
    with pytest.raises(BatchError, match="E909"):
        serve.get_app_handle("rows").remote({"x": np.zeros((1, 2), np.float32)}).result(timeout_s=120)
