"""What hostile clients send: heads without an end, shapes that no array has, pages of other machines, no messages."""

import json
import socket
import threading
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.serve.running import LISTENING, RUN, running, written
from tests.serve.test_limits import LONG, ROWS, count, rows

from openinfer.errors import ServingError
from openinfer.serve import ModelFiles
from openinfer.serve.datatypes import from_numbers
from openinfer.serve.grpc_codec import SERVICE, message
from openinfer.serve.options import ServeOptions, TlsFiles
from openinfer.serve.security import require_safe


def said(port: int, data: bytes) -> bytes:
    """All that the server says to some bytes, until it hangs up."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data)
        while chunk := connection.recv(65536):
            found += chunk
    return found


def test_a_head_that_is_too_long_late_or_no_http_has_an_answer_with_a_code(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, ROWS)), options=replace(LISTENING, read_timeout=1.0)) as found:
        port = found.server.port
        endless = said(port, b"GET /v2 HTTP/1.1\r\nX: " + b"a" * 400_000)
        assert endless.startswith(b"HTTP/1.1 431 ")
        assert b'"code": "E906"' in endless
        chunk = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: "
        assert b'"code": "E906"' in said(port, chunk + b"a" * 800_000)
        late = said(port, b"GET /v2 HTTP/1.1\r\nX")
        assert late.startswith(b"HTTP/1.1 408 ")
        assert b'"code": "E904"' in late
        assert said(port, b"") == b"", "a connection without a request is closed"
        assert b'"code": "E901"' in said(port, b"\x00\x01\r\n\r\n")
        assert all("event" in line for line in found.lines()), "what others log is JSON, too"
        assert found.ask("/v2/models/m/infer", rows([1.0])).status == 200


def test_a_client_that_closes_its_side_gets_its_answer(tmp_path: Path) -> None:
    """Also after it has waited for longer than it takes to ask whether it is still there."""
    with running(ModelFiles(written(tmp_path, LONG)), replace(RUN, instances=1)) as found:
        for count_to in (5, 50_000_000):
            connection = HTTPConnection("127.0.0.1", found.server.port)
            connection.request("POST", "/v2/models/m/infer", json.dumps(count(count_to)))
            connection.sock.shutdown(socket.SHUT_WR)
            answer = connection.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read())["outputs"][0]["data"] == [count_to]
            assert answer.getheader("connection") == "close"


@pytest.mark.parametrize(
    "part", [b"GET /v2 HTTP/1.1\r\nX", b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"]
)
def test_a_client_that_closes_its_side_too_early_is_told(tmp_path: Path, part: bytes) -> None:
    with running(ModelFiles(written(tmp_path, ROWS))) as found:
        with socket.create_connection(("127.0.0.1", found.server.port), timeout=60) as connection:
            connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'"code": "E901"' in answer
        assert found.ask("/v2/models/m/infer", rows([1.0])).status == 200


def test_paths_and_methods_that_are_none_have_a_status(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, ROWS))) as found:
        reply = found.ask("/v2", method="PUT")
        assert (reply.status, {*reply.headers["allow"].split(", ")}) == (405, {"GET", "HEAD"})
        assert found.ask("/v2/", headers={"Host": "elsewhere.example"}).status == 404, "nothing leads elsewhere"


@pytest.mark.parametrize("shape", [[0, 1 << 39, 1 << 39], [1 << 39] * 31 + [0]])
def test_shapes_without_elements_have_bounds(tmp_path: Path, shape: list[int]) -> None:
    with running(ModelFiles(written(tmp_path, ROWS))) as found:
        tensor = {"name": "x", "datatype": "FP32", "shape": shape}
        parts: list[dict[str, object]] = [{"data": []}, {"parameters": {"binary_data_size": 0}}]
        for given in parts:
            reply = found.ask("/v2/models/m/infer", {"inputs": [tensor | given]})
            assert (reply.status, reply.facts["code"]) == (400, "E901")
        empty = found.ask("/v2/models/m/infer", {"inputs": [tensor | {"shape": [0, 2], "data": []}]})
        assert empty.facts["outputs"][0]["shape"] == [0, 2]


def test_large_numbers_of_double_precision_are_numbers_of_json(tmp_path: Path) -> None:
    text = "dynamic { x: f64[1]; } volatile { y: f64[1]; } block entry { op mul(x, x) >> y; return y; }"
    with running(ModelFiles(written(tmp_path, text))) as found:
        tensor = {"name": "x", "datatype": "FP64", "shape": [1], "data": [1e100]}
        assert found.ask("/v2/models/m/infer", {"inputs": [tensor]}).facts["outputs"][0]["data"] == [1e200]
        assert found.ask("/v2/models/m/infer", {"inputs": [tensor | {"data": [1e200]}]}).facts["code"] == "E313"


def test_the_first_answer_of_a_stream_has_a_status(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, ROWS))) as found:
        reply = found.ask("/v2/models/m/infer_stream", {"inputs": []})
        assert (reply.status, reply.facts["code"]) == (400, "E901")


def test_pages_of_other_machines_are_refused_where_there_is_no_token(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, ROWS))) as found:
        for origin in ("https://evil.example", "null", "http://[", "http://127.0.0.1.evil.example"):
            reply = found.ask("/v2/repository/models/m/unload", {}, {"Origin": origin})
            assert (reply.status, reply.facts["code"]) == (403, "E905")
        for origin in ("http://localhost:3000", "http://127.0.0.1", "https://[::1]:8000"):
            assert found.ask("/v2/models/m/infer", rows([1.0]), {"Origin": origin}).status == 200


def test_bytes_that_are_no_message_and_infinities_over_grpc(tmp_path: Path) -> None:
    with running(ModelFiles(written(tmp_path, ROWS)), RUN) as found:
        with grpc.insecure_channel(found.grpc_address) as channel:
            infer = channel.unary_unary(
                f"/{SERVICE}/ModelInfer", response_deserializer=message("ModelInferResponse").FromString
            )
            with pytest.raises(grpc.RpcError) as caught:
                infer(b"\xff\xff\xff", timeout=60)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            stream = channel.stream_stream(
                f"/{SERVICE}/ModelStreamInfer", response_deserializer=message("ModelStreamInferResponse").FromString
            )
            request = message("ModelInferRequest")(model_name="m")
            tensor = request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
            tensor.contents.fp32_contents.extend([float("inf"), float("nan")])
            answers = list(stream(iter([b"\xff", request.SerializeToString()]), timeout=60))
        assert "E901" in answers[0].error_message
        given = np.frombuffer(answers[1].infer_response.raw_output_contents[0], "<f4")
        assert np.isposinf(given[0])
        assert np.isnan(given[1])


def test_numbers_beyond_a_datatype_are_refused_and_infinities_are_not() -> None:
    assert np.isinf(from_numbers("x", "FP16", (1,), np.array([np.inf], np.float32))).all()
    with pytest.raises(ServingError, match="E302"):
        from_numbers("x", "FP16", (1,), np.array([1e6], np.float32))


def test_tokens_and_certificates_are_checked_before_anything_listens(tmp_path: Path) -> None:
    for token in ("p\u00e4ssw\u00f6rd-of-some-length", "two lines\nof some length"):
        with pytest.raises(ServingError, match="header"):
            require_safe(ServeOptions(token=token))
    (tmp_path / "garbage.pem").write_text("garbage")
    for path in (str(tmp_path / "garbage.pem"), str(tmp_path / "missing.pem")):
        with pytest.raises(ServingError, match="certificate") as caught:
            require_safe(ServeOptions(tls=TlsFiles(path, path)))
        assert caught.value.code == "E908"


def test_an_error_that_is_ours_takes_no_instance_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        message = "a mistake of ours"
        raise ValueError(message)

    run = replace(RUN, instances=1, max_batch=8, max_wait=0.2)
    with running(ModelFiles(written(tmp_path, ROWS)), run) as found:
        monkeypatch.setattr(np, "concatenate", broken)
        replies: list[int] = []
        threads = [
            threading.Thread(target=lambda: replies.append(found.ask("/v2/models/m/infer", rows([1.0])).status))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert replies == [200, 200, 200], "each runs alone"
