"""Other people's clients: tritonclient over HTTP and gRPC, and OpenAI's package. ``make test-serve`` installs them."""

import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import numpy as np
import openai
import pytest
import tritonclient.grpc
import tritonclient.http
from google.protobuf import descriptor_pb2
from tests.serve.running import LISTENING, Running, running, written
from tests.serve.test_protocol import DOUBLE, NARROW, SAMPLES, of_every_dtype
from tests.serve.test_sessions import SUM
from tests.serve.texts import MESSAGES, files
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from openinfer.dtypes import DTYPES
from openinfer.serve import ModelFiles
from openinfer.serve.datatypes import DATATYPES, wire_name
from openinfer.serve.describe import DESCRIPTION, describe

__all__ = ["files"]
PROTOCOLS = pytest.mark.parametrize("client", [tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    written(folder, of_every_dtype(), "dtypes/1/graph.oig")
    written(folder, f"sizes {{ B <= 8; }} {DOUBLE}", "double/1/graph.oig")
    written(folder, SUM, "sum/1/graph.oig")
    with running(folder) as found:
        yield found


def connected(client: ModuleType, found: Running) -> Any:
    address = found.grpc_address if client is tritonclient.grpc else found.address
    return client.InferenceServerClient(address)


def tensor(client: ModuleType, name: str, array: Any, datatype: str) -> Any:
    given = client.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


@PROTOCOLS
def test_health_metadata_and_the_repository(client: Any, server: Running) -> None:
    with connected(client, server) as found:
        assert found.is_server_live()
        assert found.is_server_ready()
        assert found.is_model_ready("double", "1")
        assert not found.is_model_ready("double", "2")
        as_json = {} if client is tritonclient.http else {"as_json": True}
        assert found.get_server_metadata(**as_json)["name"] == "openinfer"
        facts = found.get_model_metadata("double", **as_json)
        assert [list(map(int, one["shape"])) for one in facts["inputs"]] == [[-1, 2]]
        found.unload_model("double")
        assert not found.is_model_ready("double")
        found.load_model("double")
        assert found.is_model_ready("double")
        index = found.get_model_repository_index(**as_json)
        names = {one["name"] for one in (index if client is tritonclient.http else index["models"])}
        assert names == {"dtypes", "double", "sum"}
        with pytest.raises(InferenceServerException, match="E901"):
            found.load_model("double", config="{}")


@PROTOCOLS
def test_tensors_of_every_datatype(client: Any, server: Running) -> None:
    wire = {name: wire_name(dtype) for name, dtype in DTYPES.items()}
    arrays = {name: np.array(NARROW.get(name, SAMPLES[one])).astype(DATATYPES[one]) for name, one in wire.items()}
    with connected(client, server) as found:
        inputs = [tensor(client, f"x_{name}", array, wire[name]) for name, array in arrays.items()]
        answer = found.infer("dtypes", inputs, request_id="seven")
        for name, array in arrays.items():
            assert np.array_equal(answer.as_numpy(f"y_{name}"), array[::-1]), name
        one = found.infer("dtypes", inputs, outputs=[client.InferRequestedOutput("y_f32")])
        assert one.as_numpy("y_f32").tolist() == [1.0, -2.0, 0.5]
        assert one.as_numpy("y_f64") is None


@PROTOCOLS
def test_errors_have_codes(client: Any, server: Running) -> None:
    with connected(client, server) as found:
        for model, given, code in (
            ("nothing", tensor(client, "x", np.zeros((1, 2), np.float32), "FP32"), "E902"),
            ("double", tensor(client, "x", np.zeros((1, 3), np.float32), "FP32"), "E308"),
            ("double", tensor(client, "x", np.zeros((1, 2), np.int32), "INT32"), "E307"),
            ("double", tensor(client, "w", np.zeros((1, 2), np.float32), "FP32"), "E901"),
            ("sum", tensor(client, "x", np.zeros((), np.float32), "FP32"), "E907"),
        ):
            with pytest.raises(InferenceServerException, match=code):
                found.infer(model, [given])


@PROTOCOLS
def test_sequences(client: Any, server: Running) -> None:
    with connected(client, server) as found:

        def step(value: float, sequence: int | str, **flags: bool) -> float:
            given = tensor(client, "x", np.array(value, np.float32), "FP32")
            return float(found.infer("sum", [given], sequence_id=sequence, **flags).as_numpy("y"))

        name = client.__name__
        assert step(1, name, sequence_start=True) == 1
        assert step(1, 1_000_000_007, sequence_start=True) == 1
        assert step(2, name) == 3
        assert step(2, name, sequence_end=True) == 5
        with pytest.raises(InferenceServerException, match="E907"):
            step(1, name)


def test_a_stream_of_grpc_answers_in_order_and_goes_on_after_errors(server: Running) -> None:
    client, answers = tritonclient.grpc, queue.Queue[Any]()
    with connected(client, server) as found:
        found.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(5):
            value = tensor(client, "x", np.array(number, np.float32), "FP32")
            flags = {"sequence_start": number == 0, "sequence_end": number == 4}
            found.async_stream_infer("sum", [value], sequence_id="s", request_id=str(number), **flags)
        seen = [answers.get(timeout=30)[0] for _ in range(5)]
        assert [float(one.as_numpy("y")) for one in seen] == [0, 1, 3, 6, 10]
        assert [one.get_response().id for one in seen] == list("01234")
        found.async_stream_infer("sum", [tensor(client, "x", np.array(1, np.float32), "FP32")], sequence_id="s")
        assert "E907" in str(answers.get(timeout=30)[1])
        value = tensor(client, "x", np.array(2, np.float32), "FP32")
        found.async_stream_infer("sum", [value], sequence_id="t", sequence_start=True, parameters={"steps": 3})
        assert [float(answers.get(timeout=30)[0].as_numpy("y")) for _ in range(3)] == [2, 4, 6]
        found.stop_stream()


def test_a_token_is_asked_for_in_grpc_too(tmp_path: Path) -> None:
    options = replace(LISTENING, token=TOKEN)
    with (
        running(ModelFiles(written(tmp_path, SUM)), options=options) as server,
        connected(tritonclient.grpc, server) as found,
    ):
        assert found.is_server_live()
        with pytest.raises(InferenceServerException, match="E905"):
            found.get_model_metadata("m")
        assert found.get_model_metadata("m", headers={"authorization": f"Bearer {TOKEN}"}).name == "m"


def test_a_call_that_is_too_large_is_refused(tmp_path: Path) -> None:
    options = replace(LISTENING, max_request_bytes=1000)
    graph = written(tmp_path, "dynamic { x: f32[1000]; } block entry { op add(x, x) >> x; return x; }")
    given = tensor(tritonclient.grpc, "x", np.zeros(1000, np.float32), "FP32")
    with (
        running(ModelFiles(graph), options=options) as server,
        connected(tritonclient.grpc, server) as found,
        pytest.raises(InferenceServerException, match="larger than max"),
    ):
        found.infer("m", [given])


def signature(method: Any) -> tuple[Any, ...]:
    types = method.input_type.lstrip("."), method.output_type.lstrip(".")
    return method.name, *types, method.client_streaming, method.server_streaming


def test_messages_are_those_of_the_protocol(tmp_path: Path) -> None:
    """Every message and field of ours is the same in the messages that tritonclient was generated from."""
    describe(tmp_path / "again.desc")
    assert (tmp_path / "again.desc").read_bytes() == DESCRIPTION.read_bytes()
    ours = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTION.read_bytes()).file[0]
    theirs = descriptor_pb2.FileDescriptorProto()
    service_pb2.DESCRIPTOR.CopyToProto(theirs)
    others = {one.name: one for one in theirs.message_type}
    for message in ours.message_type:
        fields = {(one.number, one.name, one.type, one.label, one.type_name) for one in others[message.name].field}
        for one in message.field:
            assert (one.number, one.name, one.type, one.label, one.type_name) in fields, message.name
    (service,) = ours.service
    assert {signature(one) for one in service.method} <= {signature(one) for one in theirs.service[0].method}


def test_openai_streams_a_conversation(files: ModelFiles) -> None:
    with running(files) as server, openai.OpenAI(base_url=f"http://{server.address}/v1", api_key="none") as client:
        assert [one.id for one in client.models.list()] == ["m"]
        wanted: Any = {"model": "m", "messages": MESSAGES, "temperature": 0, "max_tokens": 8}
        whole = client.chat.completions.create(**wanted)
        parts = list(client.chat.completions.create(**wanted, stream=True))
        text = "".join(one.choices[0].delta.content or "" for one in parts)
        assert text == whole.choices[0].message.content
        assert len(parts) > 1
        said = client.completions.create(model="m", prompt="abc", temperature=0, max_tokens=5)
        assert said.usage is not None
        assert said.usage.completion_tokens <= 5
        with pytest.raises(openai.BadRequestError, match="E901"):
            client.chat.completions.create(**wanted, n=2)
        with pytest.raises(openai.NotFoundError, match="E902"):
            client.completions.create(model="other", prompt="a")


def test_random_bytes_are_answered_in_grpc(server: Running) -> None:
    """Random bytes as every method: an error each, and the server goes on."""
    random = np.random.default_rng(0)
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(500):
            with pytest.raises(grpc.RpcError):
                call(random.bytes(int(random.integers(1, 60))), timeout=30)
    assert server.ask("/v2/health/live").status == 200
