"""The chat program on a tiny model: Python's tokens and simulator in C, conversations, limits, and what it refuses.

The real model is downloaded and built by ``make chat`` and ``make examples`` only: it takes a minute, and 100 MB.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from examples.chat.__main__ import main
from examples.chat.emit import emit
from examples.chat.example import HERE, ChatModel, greedy, imported_model
from tests.importing.gguf_files import Tiny
from tests.tokenizer.vocabularies import byte_level, write

from openinfer import ModelLoader, Simulator, load_graph
from openinfer.tokenizer import Message

SYSTEM = 'A "b".'
CONTEXT, PROMPT = 64, 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ChatModel:
    folder = tmp_path_factory.mktemp("chat")
    metadata = byte_level(size=400)
    tiny = Tiny(
        width=32, heads=2, groups=1, hidden=32, vocabulary=400, tied=False, formats={"": "Q4_1", "token_embd.": "Q8_0"}
    )
    return imported_model(write(folder / "tiny.gguf", metadata, tiny), folder, CONTEXT, PROMPT)


@pytest.fixture(scope="module")
def program(model: ChatModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the program, built."""
    folder = tmp_path_factory.mktemp("program")
    emit(model, folder, SYSTEM, "generic")
    subprocess.run(["make", "-s", "-C", str(folder), "CFLAGS=-O1 -Wall -Wextra -Werror"], check=True)
    return folder


def run(program: Path, *options: str, said: str = "") -> tuple[int, str, str]:
    """The status of the program, what it says, and what it says about it."""
    ended = subprocess.run(["./chat", *options], cwd=program, input=said.encode(), capture_output=True, check=False)
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def streamed(program: Path, *options: str) -> list[int]:
    status, said, _ = run(program, "--ids", *options)
    assert status == 0
    return [int(one) for one in said.split()]


def likeliest(model: ChatModel, messages: list[Message], count: int) -> list[int]:
    """What the simulator answers, up to the end that the model sets."""
    tokens = model.form.encode(model.tokenizer, messages)
    with ModelLoader.open(model.imported.model) as weights:
        simulator = Simulator(weights).with_trace("off")
        graphs = (str(model.imported.prefill), model.imported.graph)
        prefill, decode = (simulator.make_executor(load_graph(path)) for path in graphs)
        for start in range(0, len(tokens) - PROMPT, PROMPT):
            prefill(tokens=np.array(tokens[start : start + PROMPT]))
        found, _ = greedy(prefill, decode, tokens[(len(tokens) - 1) // PROMPT * PROMPT :], count)
    ends = [at for at, one in enumerate(found) if one in model.tokenizer.vocabulary.ends]
    return found[: ends[0]] if ends else found


def test_the_program_says_what_the_simulator_says(model: ChatModel, program: Path) -> None:
    text = "It's <|im_end|>é"
    wanted = likeliest(model, [Message("system", SYSTEM), Message("user", text)], 6)
    assert streamed(program, "--greedy", "--tokens", "6", "--prompt", text) == wanted
    other = likeliest(model, [Message("system", "Be so."), Message("user", text)], 6)
    assert streamed(program, "--greedy", "--tokens", "6", "--prompt", text, "--system", "Be so.") == other
    none = likeliest(model, [Message("user", text)], 6)
    assert streamed(program, "--greedy", "--tokens", "6", "--prompt", text, "--system", "") == none


def test_text_is_that_of_the_tokens(model: ChatModel, program: Path) -> None:
    options = ("--seed", "3", "--temperature", "2", "--tokens", "20", "--prompt", "Hi")
    tokens = streamed(program, *options)
    status, said, about = run(program, *options)
    assert (status, said) == (0, model.tokenizer.decode(tokens) + "\n")
    assert re.fullmatch(r"\[\d+ tokens read, \d+ a second; \d+ said, \d+ a second; \d+ of 64 in use\]\n", about)


def test_a_seed_gives_the_same_answer_and_another_one_another(program: Path) -> None:
    options = ("--tokens", "15", "--temperature", "1.5", "--top-k", "100", "--top-p", "1", "--prompt", "Hi")
    first = streamed(program, "--seed", "1", *options)
    assert streamed(program, "--seed", "1", *options) == first
    assert streamed(program, "--seed", "2", *options) != first
    likely = streamed(program, "--seed", "2", "--tokens", "15", "--top-k", "1", "--prompt", "Hi")
    assert likely == streamed(program, "--greedy", "--tokens", "15", "--prompt", "Hi")
    assert likely == streamed(program, "--top-p", "0", "--tokens", "15", "--prompt", "Hi")


def test_a_conversation_goes_on_and_begins_anew(model: ChatModel, program: Path) -> None:
    options = ("--ids", "--greedy", "--tokens", "3", "--system", "")
    _, once, _ = run(program, *options, said="Hi\n")
    _, said, about = run(program, *options, said="Hi\nMore\n/reset\n\nHi\n/quit\nHi\n")
    tokens = [int(one) for one in said.split()]
    first = [int(one) for one in once.split()]
    answer = model.tokenizer.decode(first)
    second = tokens[len(first) : -len(first)]
    assert tokens == [*first, *second, *first]
    if model.tokenizer.encode(answer) == first:
        talk = [Message("user", "Hi"), Message("assistant", answer), Message("user", "More")]
        assert second == likeliest(model, talk, 3)
    assert about.count("in use]") == 3


def test_a_full_context_is_said_and_changes_nothing(program: Path) -> None:
    status, said, about = run(program, "--greedy", "--prompt", "word " * 80)
    assert (status, said) == (1, "")
    assert "chat: this has more than the 64 tokens that are left of 64; /reset begins a conversation" in about
    # An answer can end by itself with any seed, but not with all of them.
    options = ("--tokens", "500", "--temperature", "3", "--top-k", "300", "--top-p", "1")
    about = "".join(run(program, "--seed", str(seed), *options, said="Hi\n" * 4)[2] for seed in range(1, 9))
    assert "the conversation has 64 tokens, all there is room for" in about
    assert "that are left of 64" in about
    status, _, about = run(program, said="x" * 20_000 + "\nHi\n")
    assert "a line has at most 16,000 bytes" in about
    assert about.count("in use]") == 1
    assert status == 0


def test_help_needs_no_model(
    program: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither fetched nor built: what is printed stands in the source."""
    status, said, _ = run(program, "--help")
    assert (status, said.split(" [")[0]) == (0, "use: chat")
    monkeypatch.setattr(sys, "argv", ["chat", "--help"])
    monkeypatch.setattr("examples.chat.__main__.build", lambda: pytest.fail("it was built"))
    main()
    assert "/quit ends it" in capsys.readouterr().out


def test_the_program_says_what_is_wrong(program: Path, tmp_path: Path) -> None:
    for options in (["--what"], ["--seed"], ["--seed", "x"], ["--top-k", "0"], ["--top-p", "2"], ["--tokens", "-1"]):
        status, _, about = run(program, *options)
        assert (status, about.split(" [")[0]) == (2, "chat: use: chat")
    away = subprocess.run([program / "chat"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert away.returncode == 1
    assert "cannot read ./tokenizer.bin: run it in its folder, or set CHAT to that folder" in away.stderr
    there = subprocess.run(
        [program / "chat", "--prompt", "Hi"], cwd=tmp_path, env={"CHAT": str(program)}, capture_output=True, check=False
    )
    assert there.returncode == 0


def test_the_readme_has_the_options_of_the_program() -> None:
    readme, source = (HERE / "README.md").read_text(), (HERE / "chat.c").read_text()
    options = set(re.findall(r'strcmp\(name, "(--[a-z-]+)"\)', source))
    assert len(options) == 10
    assert options <= set(re.findall(r"--[a-z-]+", readme))
