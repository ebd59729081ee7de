"""Hostile tokenizers in GGUF files: coded, located errors, in bounded time and memory."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.importing.gguf_files import gguf_bytes
from tests.tokenizer.vocabularies import byte_level, scored, write

from openinfer.errors import Code, ImportingError, OpenInferError
from openinfer.importing import gguf_tokenizer

BYTES, SCORES = byte_level(size=300), scored()
FIRST = BYTES["tokenizer.ggml.merges"][0]


def replaced(key: str, at: int, value: object) -> list[Any]:
    """An array of one of the files with another value at a place."""
    source = BYTES if f"tokenizer.ggml.{key}" in BYTES else SCORES
    found = list(source[f"tokenizer.ggml.{key}"])
    found[at] = value
    return found


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no model": (BYTES, {"model": None}, "tokenizer.ggml.model is missing"),
    "another model": (BYTES, {"model": "bert"}, "'bert' is not supported"),
    "a model that is a number": (BYTES, {"model": 3}, "tokenizer.ggml.model is missing, or not a string"),
    "another split": (BYTES, {"pre": "jinja"}, "'jinja', is not supported"),
    "a split that is a number": (BYTES, {"pre": 1}, "tokenizer.ggml.pre is not a string"),
    "no tokens": (BYTES, {"tokens": None}, "tokenizer.ggml.tokens is missing"),
    "tokens that are numbers": (BYTES, {"tokens": [1, 2]}, "tokens is missing, or not an array of strings"),
    "a token twice": (BYTES, {"tokens": replaced("tokens", 9, "a")}, "is the same as token 9: 'a'"),
    "a token that is not UTF-8": (BYTES, {"tokens": replaced("tokens", 4, b"\xff\xfe")}, "tokens[4] is not UTF-8"),
    "no merges": (BYTES, {"merges": None}, "tokenizer.ggml.merges is missing"),
    "a merge twice": (BYTES, {"merges": replaced("merges", 1, FIRST)}, "merges[1] is the same as merge 0"),
    "a merge of one": (BYTES, {"merges": replaced("merges", 2, "ab")}, "merges[2] is two pieces with a space"),
    "a merge of nothing": (BYTES, {"merges": replaced("merges", 2, " a")}, "merges[2] is two pieces with a space"),
    "a merge with itself": (BYTES, {"merges": replaced("merges", 2, "a ")}, "merges[2] is two pieces with a space"),
    "a merge of no token": (BYTES, {"merges": replaced("merges", 3, "q zzz")}, "merges[3] names 'zzz'"),
    "a merge into no_token": (BYTES, {"merges": replaced("merges", 3, "q Z")}, "merges[3] names 'qZ'"),
    "kinds that are texts": (BYTES, {"token_type": ["a"]}, "tokenizer.ggml.token_type is not an array of numbers"),
    "too few kinds": (BYTES, {"token_type": [1]}, "token_type has 1 numbers for 300 tokens"),
    "a begin that is no token": (BYTES, {"bos_token_id": 300}, "bos_token_id is the number of one of 300 tokens"),
    "an end that is a text": (BYTES, {"eos_token_id": "2"}, "eos_token_id is the number of one of 300 tokens"),
    "a flag that is a text": (BYTES, {"add_bos_token": "yes"}, "add_bos_token is true or false"),
    "no scores": (SCORES, {"scores": None}, "tokenizer.ggml.scores is missing"),
    "a score that is none": (SCORES, {"scores": replaced("scores", 5, float("nan"))}, "scores[5] is not a number"),
    "a byte that is none": (SCORES, {"tokens": [*SCORES["tokenizer.ggml.tokens"][:8], "<0xGG>",
                            *SCORES["tokenizer.ggml.tokens"][9:]]}, "tokens[8] is a byte"),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_what_is_not_sound_is_refused_with_its_place(tmp_path: Path, what: str) -> None:
    source, changes, reason = CASES[what]
    metadata = source | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    path = write(tmp_path / "t.gguf", {key: value for key, value in metadata.items() if value is not None})
    with pytest.raises(ImportingError) as caught:
        gguf_tokenizer(path)
    found = caught.value.diagnostics[0]
    assert found.code in (Code.BAD_IMPORT_FILE, Code.UNSUPPORTED_NODE)
    assert str(path) in str(caught.value)
    assert reason in found.message


@pytest.mark.parametrize("metadata", [BYTES, SCORES], ids=["bytes", "scores"])
def test_mutants_are_read_or_refused(tmp_path: Path, metadata: dict[str, Any]) -> None:
    rng, data, path = random.Random(5), gguf_bytes(metadata, {}), tmp_path / "t.gguf"
    outcomes = {True: 0, False: 0}
    for _ in range(120):
        made = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            made[rng.randrange(24, len(made))] = rng.choice([0, 1, 32, 127, 255, rng.randrange(256)])
        path.write_bytes(made)
        try:
            tokenizer = gguf_tokenizer(path)
        except OpenInferError:
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        tokenizer.decode(tokenizer.encode("The cat, \U0001f642 12\n" * 3))
    assert min(outcomes.values()) > 10


def test_long_words_and_runs_are_encoded(tmp_path: Path) -> None:
    """Nothing in it is quadratic, which would be minutes here: a long word, runs of spaces, broken control tokens."""
    tokenizer = gguf_tokenizer(write(tmp_path / "t.gguf", BYTES))
    for text in ("ab" * 15_000, " " * 30_000, "\n " * 15_000, "<|im_" * 6_000):
        assert tokenizer.decode(tokenizer.encode(text)) == text
