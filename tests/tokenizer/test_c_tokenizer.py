"""The tokenizer in C gives the tokens of the one in Python, under sanitizers, and refuses other data."""

import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.tokenizer.vocabularies import byte_level, random_texts, scored, write

from openinfer.importing import gguf_tokenizer
from openinfer.tokenizer import CHAT_FORMATS, Tokenizer, c_files, chat_header

MAIN = """
#include <stdio.h>
#include "tokenizer.h"
static tokenizer_work work;
static int64_t tokens[TOKENIZER_MOST_TEXT];
static char text[2 * TOKENIZER_MOST_TEXT];
static _Alignas(8) unsigned char data[1 << 20];
int main(void)
{
    tokenizer t;
    uint32_t bytes;
    FILE *const file = fopen("tokenizer.bin", "rb");
    const size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    if (!tokenizer_open(&t, data, size)) return 3;
    while (fread(&bytes, 4, 1, stdin) == 1 && fread(text, 1, bytes, stdin) == bytes) {
        const int64_t count = tokenizer_encode(&t, &work, text, bytes, tokens, TOKENIZER_MOST_TEXT);
        printf("%d", (int)count);
        for (int64_t i = 0; i < count; ++i) printf(" %d", (int)tokens[i]);
        size_t whole = tokenizer_whole_bytes(text, bytes), length = 0;
        for (int64_t i = 0; i < count; ++i) {
            size_t own;
            tokenizer_piece(&t, tokens[i], &own);
            length += own;
        }
        printf(" %d %d\\n", (int)length, (int)whole);
    }
    return 0;
}
"""
SCHEMES = {
    "smollm": byte_level("smollm"),
    "llama-bpe": byte_level("llama-bpe"),
    "default": byte_level("default"),
    "scored": scored(),
    "scored without a space": scored(has_space_before=False),
}


def compiled(folder: Path, metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer, and the program that encodes what it is given, in a folder."""
    tokenizer = gguf_tokenizer(write(folder / "t.gguf", metadata))
    for name, data in c_files(tokenizer).items():
        (folder / name).write_bytes(data)
    (folder / "main.c").write_text(MAIN)
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-fsanitize=address,undefined"]
    subprocess.run(["gcc", *flags, "main.c", "tokenizer.c", "-o", "main"], cwd=folder, check=True)
    return tokenizer


def whole_bytes(data: bytes) -> int:
    """How many bytes end with a whole character, or with something that never becomes one."""
    for back in (1, 2, 3):
        tail = data[-back:]
        if len(data) >= back and 0xC2 <= tail[0] <= 0xF4:
            needed = 2 + (tail[0] >= 0xE0) + (tail[0] >= 0xF0)
            return len(data) - back if back < needed else len(data)
        if len(data) < back or not 0x80 <= tail[0] < 0xC0:
            break
    return len(data)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_c_gives_the_tokens_of_python(tmp_path: Path, scheme: str) -> None:
    tokenizer, rng = compiled(tmp_path, SCHEMES[scheme]), random.Random(3)
    texts = [one.encode() for one in random_texts(150, seed=1)]
    signs = b"a \xff\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\xed\xa0\x80\xc0\xf5\n1"
    texts += [bytes(rng.choice(signs) for _ in range(rng.randint(1, 40))) for _ in range(100)]
    texts += [b"the [tool] and\xe2\x96\x81[tool]", b"ab" * 8000, b" " * 9000]
    given = b"".join(struct.pack("<I", len(one)) + one for one in texts)
    said = subprocess.run(["./main"], cwd=tmp_path, input=given, capture_output=True, check=True).stdout
    found = [[int(one) for one in line.split()] for line in said.splitlines()]
    for text, (count, *tokens, length, whole) in zip(texts, found, strict=True):
        wanted = tokenizer.encode(text)
        assert (count, tokens) == (len(wanted), wanted), text
        assert length == sum(len(tokenizer.piece(one)) for one in wanted)
        assert whole == whole_bytes(text), text


def test_a_text_that_is_too_long_is_none(tmp_path: Path) -> None:
    compiled(tmp_path, SCHEMES["smollm"])
    given = struct.pack("<I", 40_000) + b"a" * 40_000
    said = subprocess.run(["./main"], cwd=tmp_path, input=given, capture_output=True, check=True).stdout
    assert said.split()[0] == b"-1"


def test_other_data_is_refused(tmp_path: Path) -> None:
    compiled(tmp_path, SCHEMES["scored"])
    data, rng = (tmp_path / "tokenizer.bin").read_bytes(), random.Random(4)
    given = struct.pack("<I", 9) + b"the and\xff "
    outcomes = set()
    for place in [0, 4, 8, 12, 16, 20, 24, *(rng.randrange(32, len(data) // 4) * 4 for _ in range(40)), -1]:
        made = data[:-5] if place < 0 else data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :]
        (tmp_path / "tokenizer.bin").write_bytes(made)
        ended = subprocess.run(["./main"], cwd=tmp_path, input=given, capture_output=True, check=False)
        assert ended.returncode in (0, 3), ended.stderr.decode()
        outcomes.add((place < 32, ended.returncode))
    assert (True, 0) not in outcomes


@pytest.mark.parametrize("name", CHAT_FORMATS)
def test_a_form_of_conversations_compiles(tmp_path: Path, name: str) -> None:
    tokenizer = gguf_tokenizer(write(tmp_path / "t.gguf", SCHEMES["smollm"]))
    uses = "const void *all[] = { chat_with_system, chat_without_system, chat_next, chat_ends };"
    source = f"#include <stdint.h>\n{chat_header(tokenizer, CHAT_FORMATS[name])}{uses}\n"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-fsyntax-only", "-x", "c", "-"]
    subprocess.run(["gcc", *flags], input=source.encode(), check=True)
