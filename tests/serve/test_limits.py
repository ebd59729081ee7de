"""What a server takes at most, and whom it lets in."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
from tests.serve.running import LISTENING, RUN, running, serving, written

from openinfer.errors import ServingError
from openinfer.serve import Inference, ModelFiles, Repository
from openinfer.serve.options import ServeOptions
from openinfer.serve.security import require_safe
from openinfer.serve.server import Server
from openinfer.serve.work import Job

ROWS = """sizes { B <= 64; } dynamic { x: f32[B, 2]; } volatile { y: f32[B, 2]; }
block entry { op add(x, x) >> y; return y; }"""
LONG = """dynamic { n: i64; } volatile { y: i64 @init(0); }
block entry { loop rounds (i in 0..n) { op add(y, 1) >> y; } return y; }"""
TOKEN = "a-token-of-some-length"


def rows(values: list[float]) -> dict[str, object]:
    data = [value for value in values for _ in range(2)]
    return {"inputs": [{"name": "x", "shape": [len(values), 2], "datatype": "FP32", "data": data}]}


def count(n: int, **parameters: object) -> dict[str, object]:
    tensor = {"name": "n", "shape": [], "datatype": "INT64", "data": [n]}
    return {"inputs": [tensor], "parameters": parameters}


def test_requests_that_run_as_one_step_get_their_own_rows(tmp_path: Path) -> None:
    run = replace(RUN, instances=1, max_batch=16, max_wait=0.05)
    with running(ModelFiles(written(tmp_path, ROWS)), run) as found, ThreadPoolExecutor(12) as threads:

        def answer(number: int) -> list[float]:
            values = [float(number * 10 + row) for row in range(1 + number % 3)]
            facts = found.ask("/v2/models/m/infer", rows(values)).facts["outputs"][0]
            assert facts["shape"] == [len(values), 2]
            assert facts["data"] == [2 * value for value in values for _ in range(2)]
            return values

        assert len(list(threads.map(answer, range(60)))) == 60
        line = next(line for line in found.ask("/metrics").body.decode().splitlines() if "batch_requests_count" in line)
        assert float(line.split()[-1]) < 60, "some steps had several requests"


def test_one_bad_request_of_a_batch_does_not_fail_the_others(tmp_path: Path) -> None:
    text = """sizes { B <= 8; } dynamic { i: i64[B]; } volatile { y: f32[B]; } constant { w: f32[3] @init(2); }
    block entry { op gather(w, i, axis=0) >> y; return y; }"""
    run = replace(RUN, instances=1, max_batch=8, max_wait=0.2)
    with running(ModelFiles(written(tmp_path, text)), run) as found, ThreadPoolExecutor(4) as threads:

        def answer(index: int) -> object:
            tensor = {"name": "i", "shape": [1], "datatype": "INT64", "data": [index]}
            facts = found.ask("/v2/models/m/infer", {"inputs": [tensor]}).facts
            return facts.get("code") or facts["outputs"][0]["data"]

        assert list(threads.map(answer, [0, 7, 1, 2])) == [[2.0], "E313", [2.0], [2.0]]


def test_a_full_queue_refuses_and_dropped_steps_end(tmp_path: Path) -> None:
    run = replace(RUN, instances=1, max_queue=1)
    with running(ModelFiles(written(tmp_path, LONG)), run) as found:
        pool = found.repository.found("m").pool
        jobs = [Job({"n": np.array(1 << 60)}, timeout=600.0) for _ in range(2)]
        pool.submit(jobs[0])
        while jobs[0].interrupt is None:
            threading.Event().wait(0.01)
        pool.submit(jobs[1])
        refused = found.ask("/v2/models/m/infer", count(1))
        assert (refused.status, refused.facts["code"], refused.headers["retry-after"]) == (429, "E903", "1")
        for job in reversed(jobs):
            pool.drop(job)
        assert found.ask("/v2/models/m/infer", count(5)).facts["outputs"][0]["data"] == [5], (
            "the instance is free again"
        )


def test_a_late_answer_is_given_up(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, LONG)), replace(RUN, instances=1)) as found:
        late = found.ask("/v2/models/m/infer", count(1 << 60, timeout=200_000))
        assert (late.status, late.facts["code"]) == (504, "E904")
        assert found.ask("/v2/models/m/infer", count(5)).facts["outputs"][0]["data"] == [5], (
            "the instance is free again"
        )


def test_a_step_ends_when_its_client_hangs_up(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, LONG)), replace(RUN, instances=1)) as found:
        connection = HTTPConnection("127.0.0.1", found.server.port)
        connection.request("POST", "/v2/models/m/infer", json.dumps(count(1 << 60)))
        while b"openinfer_batch_requests_count" not in found.ask("/metrics").body:
            threading.Event().wait(0.01)
        connection.close()
        assert found.ask("/v2/models/m/infer", count(5)).facts["outputs"][0]["data"] == [5], (
            "the instance is free again"
        )


def test_a_large_request_is_refused_before_it_is_read(tmp_path: Path) -> None:
    options = replace(LISTENING, max_request_bytes=1000)
    with running(ModelFiles(written(tmp_path, ROWS)), options=options) as found:
        assert found.ask("/v2/models/m/infer", b"x" * 2000).facts["code"] == "E906"
        assert found.ask("/v2/models/m/infer", rows([1.0])).status == 200


def test_a_server_with_a_token_answers_those_who_have_it(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, ROWS)), options=replace(LISTENING, token=TOKEN)) as found:
        assert found.ask("/v2/health/live").status == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            for path in ("/v2", "/metrics", "/v1/models", "/v2/models/m"):
                assert found.ask(path, headers=headers).facts["code"] == "E905"
        assert found.ask("/v2", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_server_does_not_listen_elsewhere_without_knowing_who_talks(host: str) -> None:
    with pytest.raises(ServingError) as caught:
        require_safe(ServeOptions(host))
    assert caught.value.code == "E908"
    require_safe(ServeOptions(host, token=TOKEN))
    with pytest.raises(ServingError):
        require_safe(ServeOptions(host, token="short"))


def test_a_port_that_is_taken_is_an_error_with_a_code(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, ROWS))) as found:
        own = serving()
        options = ServeOptions(port=found.server.port, grpc_port=None)
        with pytest.raises(ServingError) as caught:
            Server(Inference(Repository(own), 1.0), options, own.metrics, own.log)
        assert caught.value.code == "E908"
