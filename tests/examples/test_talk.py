"""The language model: PyTorch, the simulator and C give the same stream; states are saved, restored and rolled back."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from examples.talk.emit import emit
from examples.talk.example import CONTEXT, DECODE, HERE, MODEL, PREFILL, Engine, Talker, figures, tokenizer_of
from examples.talk.tokenizer import END, Tokenizer, learned, plain

from openinfer import ExecutionError, ModelLoader, Simulator

GOLDEN = json.loads((HERE / "golden.json").read_text())
ENGINES: tuple[Engine, ...] = ("simulator", "c")
TEXT_BLOCK = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONSOLE_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
TEXTS = [
    "The for statement",
    "x  =  [1, 22,333]  # a\n\n    def f(x):\n        return  x\n",
    " ",
    "  two  spaces   at the end   ",
    "tabs\tand caf\u00e9s \u201cquoted\u201d",
    "isinstance(object, classinfo)->bool",
    "a" * 50 + "----" * 9,
    "\n\n\n  \n",
]


@pytest.fixture(scope="module")
def model() -> Iterator[ModelLoader]:
    with ModelLoader.open(MODEL) as opened:
        yield opened


@pytest.fixture(scope="module")
def tokenizer(model: ModelLoader) -> Tokenizer:
    return tokenizer_of(model)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the C program, built."""
    folder = tmp_path_factory.mktemp("talk")
    emit(folder, "cpu")
    subprocess.run(["make", "-s", "-C", str(folder), "CFLAGS=-O1 -Wall -Wextra -Werror"], check=True)
    return folder


def streamed(program: Path, *options: str) -> list[int]:
    """The tokens that the C program prints."""
    ended = subprocess.run(["./talk", "-i", *options], cwd=program, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return [int(line) for line in ended.stdout.split()]


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_from_its_tokens(text: str, tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(plain(text))) == plain(text)


def test_frequent_neighbours_become_pieces() -> None:
    pieces = learned(["the cat and the hat and the bat"] * 3, 103)
    assert pieces[0] == END
    assert " the" in pieces
    assert [Tokenizer(pieces).pieces[token] for token in Tokenizer(pieces).encode("the the")][-1] == " the"


def test_c_splits_text_as_python_does(program: Path, tokenizer: Tokenizer) -> None:
    lines = [
        "#define main talk_main",
        '#include "talk.c"',
        "#undef main",
        "int main(int argc, char **argv)",
        "{",
        "    static int64_t tokens[MOST_TEXT];",
        "    for (int i = 1; i < argc; ++i) {",
        "        const size_t count = encode(argv[i], tokens);",
        '        for (size_t j = 0; j < count; ++j) printf("%d ", (int)tokens[j]);',
        '        printf("\\n");',
        "    }",
        "    return 0;",
        "}",
    ]
    (program / "split.c").write_text("\n".join(lines))
    libraries = ["prefill/build/libprefill.a", "decode/build/libdecode.a"]
    flags = ["-std=c11", "-O0", "-fsanitize=address,undefined", "-Iprefill/include", "-Idecode/include"]
    subprocess.run(["gcc", *flags, "split.c", *libraries, "-o", "split"], cwd=program, check=True)
    texts = [plain(text) for text in TEXTS]
    said = subprocess.run(["./split", *texts], cwd=program, capture_output=True, text=True, check=True).stdout
    assert [[int(one) for one in line.split()] for line in said.splitlines()] == list(map(tokenizer.encode, texts))


# --- streams ----------------------------------------------------------------------------------------------------------


def test_the_simulator_gives_the_tokens_and_logits_of_pytorch(model: ModelLoader) -> None:
    for prompt, wanted in GOLDEN.items():
        talker = Talker(model, "simulator")
        found = list(talker.tokens(prompt, len(wanted["tokens"])))
        assert found == [token for token in wanted["tokens"] if token != 0]
        executor = Simulator(model).make_executor(PREFILL)
        executor.insert(prompt=[0, *talker.tokenizer.encode(prompt)], temperature=0.0, seed=0)
        executor.run_step()
        np.testing.assert_allclose(executor.fetch("logits")[:8], wanted["logits"], atol=1e-3)


@pytest.mark.parametrize(("temperature", "seed"), [(0.0, 0), (0.7, 1), (1.0, 2)])
def test_the_c_program_streams_what_the_simulator_streams(
    temperature: float, seed: int, model: ModelLoader, program: Path
) -> None:
    prompt = "The class of"
    wanted = list(Talker(model, "simulator", temperature, seed).tokens(prompt, 40))
    assert len(wanted) == 40
    assert list(Talker(model, "c", temperature, seed).tokens(prompt, 40)) == wanted
    assert streamed(program, "-n", "40", "-t", str(temperature), "-s", str(seed), prompt) == wanted


def test_seeds_and_temperatures_make_other_streams(model: ModelLoader) -> None:
    found = {tuple(Talker(model, "c", *how).tokens("The", 20)) for how in ((0.0, 1), (0.8, 1), (0.8, 2), (0.4, 1))}
    assert len(found) == 4


def test_a_prompt_read_at_once_or_token_by_token_gives_the_same(model: ModelLoader, tokenizer: Tokenizer) -> None:
    prompt = "If the object is"
    whole, parts = Talker(model, "c"), Talker(model, "c")
    wanted = whole.read(prompt)
    executor = Simulator(model).make_executor(PREFILL)
    for token in [0, *tokenizer.encode(prompt)]:
        executor.insert(prompt=[token], temperature=0.0, seed=0)
        executor.run_step()
    assert int(executor.fetch("token")) == wanted
    parts.restore(executor.save_state() or b"")
    assert [parts.next() for _ in range(8)] == [whole.next() for _ in range(8)]


def test_the_text_of_the_program_is_the_prompt_and_its_tokens(program: Path, tokenizer: Tokenizer) -> None:
    tokens = streamed(program, "-n", "12", "-t", "0", "Return")
    said = subprocess.run(["./talk", "-n", "12", "-t", "0", "Return"], cwd=program, capture_output=True, check=True)
    assert said.stdout.decode() == "Return" + tokenizer.decode(tokens) + "\n"


def test_the_readme_shows_what_the_program_prints(program: Path) -> None:
    readme = (HERE / "README.md").read_text()
    shown = [(f"./talk '{block.partition(' ')[0]} {block.split()[1]}'", block) for block in TEXT_BLOCK.findall(readme)]
    shown += [run for block in CONSOLE_BLOCK.findall(readme) for run in RUN.findall(block)]
    assert len(shown) == 5
    for command, wanted in shown:
        ended = subprocess.run(["bash", "-c", command], cwd=program, capture_output=True, text=True, check=True)
        assert ended.stdout == wanted, command


def test_a_full_cache_ends_the_text(model: ModelLoader, program: Path) -> None:
    talker = Talker(model, "c", 1.0, 5)
    long = "and the other one is not so " * 12
    found = list(talker.tokens(long, 1000))
    assert talker.room == 0 or len(found) < 1000
    assert len(found) <= CONTEXT
    assert streamed(program, "-n", "1000", "-t", "1", "-s", "5", long) == found


# --- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_restored_state_goes_on_as_before(engine: Engine, model: ModelLoader) -> None:
    talker = Talker(model, engine, 0.8, 3)
    talker.read("This module")
    saved = talker.save()
    first = [talker.next() for _ in range(10)]
    talker.restore(saved)  # roll back
    assert [talker.next() for _ in range(10)] == first
    talker.restore(saved)
    talker.seed = 4
    assert [talker.next() for _ in range(10)] != first


def test_either_engine_goes_on_where_the_other_stopped(model: ModelLoader) -> None:
    one, other = (Talker(model, engine, 0.8, 3) for engine in ENGINES)
    one.read("This module")
    other.restore(one.save())
    there = [other.next() for _ in range(5)]
    assert there == [one.next() for _ in range(5)]
    one.restore(other.save())
    assert one.save() == other.save()


def test_the_program_goes_on_from_a_saved_state(program: Path, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    how = ("-t", "0.8", "-s", "9")
    whole = streamed(program, "-n", "20", *how, "The")
    assert streamed(program, "-n", "12", "-w", state, *how, "The") == whole[:12]
    for _ in range(2):
        assert streamed(program, "-n", "8", "-l", state, *how, "") == whole[12:]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-z"], "use: talk"),
        (["-n"], "use: talk"),
        (["-l", "talk.c"], "the state cannot be read"),
        (["-l", "nowhere"], "the state cannot be read"),
        (["-n", "1", "-w", "/nowhere/state"], "the state cannot be written"),
    ],
)
def test_the_program_says_what_is_wrong(options: list[str], reason: str, program: Path) -> None:
    ended = subprocess.run(["./talk", *options], cwd=program, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert reason in ended.stderr


def test_the_graphs_differ_in_nothing_that_is_kept() -> None:
    kept = [[str(one) for one in graph.vars.values() if one.kind.value == "persistent"] for graph in (PREFILL, DECODE)]
    assert len(kept[0]) == 4
    assert kept[0] == kept[1]


def test_a_prompt_beyond_the_cache_is_an_error_that_changes_nothing(model: ModelLoader) -> None:
    executor = Simulator(model).make_executor(PREFILL)
    executor.insert(prompt=[5] * 200, temperature=0.0, seed=0)
    executor.run_step()
    executor.insert(prompt=[5] * 200, temperature=0.0, seed=0)
    with pytest.raises(ExecutionError):
        executor.run_step()
    assert executor.fetch("step") == 200


def test_the_table_has_its_row() -> None:
    found = figures()
    assert found.agrees
    assert found.agreement == "48 of 48 tokens"
