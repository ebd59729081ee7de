"""Texts of a tiny language model in the form of OpenAI's API: what the simulator says, in pieces and whole."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.importing.gguf_files import Tiny
from tests.serve.running import RUN, Running, running
from tests.tokenizer.vocabularies import byte_level, write

from openinfer import ModelLoader, Simulator, load_graph
from openinfer.importing import gguf_chat_format, gguf_tokenizer, import_gguf
from openinfer.serve import ModelFiles
from openinfer.serve.text import Sampling, chosen
from openinfer.tokenizer import Message

CONTEXT, PROMPT = 64, 16


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    folder = tmp_path_factory.mktemp("text")
    tiny = Tiny(width=32, heads=2, groups=1, hidden=32, vocabulary=400, tied=False)
    gguf = write(folder / "tiny.gguf", byte_level(size=400), tiny)
    found = import_gguf(gguf, folder / "model", name="model", sizes={"context": CONTEXT, "prompt": PROMPT})
    return ModelFiles(str(found.graph), str(found.model), str(found.prefill), str(gguf))


@pytest.fixture(scope="module")
def server(files: ModelFiles) -> Iterator[Running]:
    with running(files, RUN) as found:
        yield found


def likeliest(files: ModelFiles, tokens: list[int], count: int) -> str:
    """What the simulator says."""
    assert files.model is not None
    assert files.tokenizer is not None
    assert files.prefill is not None
    tokenizer, said = gguf_tokenizer(files.tokenizer), []
    with ModelLoader.open(files.model) as weights:
        simulator = Simulator(weights).with_trace("off")
        prefill, decode = (simulator.make_executor(load_graph(path)) for path in (files.prefill, files.graph))
        for start in range(0, len(tokens), PROMPT):
            logits = prefill(tokens=np.array(tokens[start : start + PROMPT]))
        decode.load_state(prefill.save_state() or b"")
        for _ in range(count):
            token = int(np.argmax(logits))
            if token in tokenizer.vocabulary.ends:
                break
            said.append(token)
            logits = decode(token=token)
    return tokenizer.decode(said)


MESSAGES = [{"role": "system", "content": "Be so."}, {"role": "user", "content": "It's <|im_end|>"}]


def test_a_conversation_is_answered_as_the_simulator_does(server: Running, files: ModelFiles) -> None:
    assert files.tokenizer is not None
    form, tokenizer = gguf_chat_format(files.tokenizer), gguf_tokenizer(files.tokenizer)
    tokens = form.encode(tokenizer, [Message("system", "Be so."), Message("user", "It's <|im_end|>")])
    request = {"model": "m", "messages": MESSAGES, "temperature": 0, "max_tokens": 6}
    facts = server.ask("/v1/chat/completions", request).facts
    wanted = likeliest(files, tokens, 6)
    assert facts["object"] == "chat.completion"
    assert facts["choices"][0]["message"]["content"] == wanted
    assert facts["usage"]["prompt_tokens"] == len(tokens)

    events = server.events(
        "/v1/chat/completions", request | {"stream": True, "stream_options": {"include_usage": True}}
    )
    assert events[-1] == b"[DONE]"
    assert events[-2]["usage"] == facts["usage"]
    assert "".join(one["choices"][0]["delta"]["content"] for one in events[:-2]) == wanted
    assert events[-3]["choices"][0]["finish_reason"] == facts["choices"][0]["finish_reason"]


def test_a_completion_ends_at_a_stop_and_is_drawn_the_same_for_a_seed(server: Running, files: ModelFiles) -> None:
    assert files.tokenizer is not None
    tokens = gguf_tokenizer(files.tokenizer).encode("abc", is_begin=True)
    wanted = likeliest(files, tokens, 8)
    request = {"model": "m", "prompt": "abc", "temperature": 0, "max_tokens": 8}
    assert server.ask("/v1/completions", request).facts["choices"][0]["text"] == wanted
    assert server.ask("/v1/completions", request | {"prompt": tokens}).facts["choices"][0]["text"] == wanted
    stop = wanted[2:4]
    choice = server.ask("/v1/completions", request | {"stop": stop}).facts["choices"][0]
    assert choice["text"] == wanted[: wanted.index(stop)]
    assert choice["finish_reason"] == "stop"
    drawn = [
        server.ask("/v1/completions", request | {"temperature": 1.5, "seed": seed}).facts["choices"][0]["text"]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_models_of_texts_are_listed(server: Running) -> None:
    assert [one["id"] for one in server.ask("/v1/models").facts["data"]] == ["m"]
    assert server.ask("/v1/models/m").facts["id"] == "m"


@pytest.mark.parametrize(
    "change",
    [
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": [{"role": "user", "content": "a" * 4000}]},
        {"temperature": -1},
        {"temperature": "hot"},
        {"top_p": 2},
        {"max_tokens": 0},
        {"n": 2},
        {"tools": [{}]},
        {"stop": [""]},
        {"stop": ["a"] * 9},
        {"seed": 0.5},
        {"stream": "yes"},
        {"logprobs": True},
    ],
)
def test_what_is_not_understood_has_a_code(server: Running, change: dict[str, object]) -> None:
    reply = server.ask("/v1/chat/completions", {"model": "m", "messages": MESSAGES} | change)
    assert (reply.status, reply.facts["error"]["code"]) == (400, "E901")


def test_a_model_that_makes_no_texts_says_so(server: Running) -> None:
    assert server.ask("/v1/completions", {"model": "n", "prompt": "a"}).facts["error"]["code"] == "E902"
    assert server.ask("/v1/completions", {"prompt": "a"}).facts["error"]["code"] == "E901"


def test_the_same_graph_is_also_sessions(server: Running) -> None:
    tensor = {"name": "token", "shape": [], "datatype": "INT64", "data": [3]}
    request = {"inputs": [tensor], "parameters": {"sequence_id": 1, "sequence_start": True}}
    assert server.ask("/v2/models/m/infer", request).facts["outputs"][0]["shape"] == [400]


def test_tokens_are_drawn_from_those_that_make_up_top_p() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    random = np.random.default_rng(1)
    drawn = [chosen(logits, Sampling(1.0, 0.7), random) for _ in range(400)]
    assert set(drawn) == {0, 1}
    assert 200 < drawn.count(0) < 300
    assert {chosen(logits, Sampling(1.0, 1.0), random) for _ in range(400)} == {0, 1, 2, 3}


def test_a_prompt_that_cannot_fit_is_refused_before_its_tokens_are_looked_for(server: Running) -> None:
    for path, given in (
        ("/v1/completions", {"prompt": "a" * 2_000_000}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 2_000_000}]}),
    ):
        reply = server.ask(path, {"model": "m", **given})
        assert (reply.status, reply.facts["error"]["code"]) == (400, "E901")
        assert "2,000,000 bytes" in reply.facts["error"]["message"]


def test_a_bound_that_is_null_is_none(server: Running) -> None:
    request = {"model": "m", "messages": MESSAGES, "temperature": 0}
    for bounds, wanted in (
        ({"max_tokens": None, "max_completion_tokens": 2}, 2),
        ({"max_tokens": 2, "max_completion_tokens": None}, 2),
    ):
        assert server.ask("/v1/chat/completions", request | bounds).facts["usage"]["completion_tokens"] <= wanted
    whole, null = (server.ask("/v1/chat/completions", request | one).facts for one in ({}, {"max_tokens": None}))
    assert null["usage"] == whole["usage"]
