"""Tiles in C as a reader sees them: the functions for one row and for several, and the copies and loops around them."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.synth.flags import FAST
from tests.synth.in_c import HEAD
from tests.synth.scheduled_in_c import kernel_for

from openinfer.dtypes import DTYPES
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.c.support import support_code
from openinfer.synth.targets.cpu.emit.byte_tap_tiles import ByteTapTile
from openinfer.synth.targets.cpu.emit.byte_tiles import ByteTile, Flips
from openinfer.synth.targets.cpu.emit.channel_tiles import ChannelTile
from openinfer.synth.targets.cpu.emit.group_tiles import GroupTile
from openinfer.synth.targets.cpu.emit.long_tiles import LongTile
from openinfer.synth.targets.cpu.emit.tap_tiles import TapTile
from openinfer.synth.targets.cpu.emit.tiles import FloatTile
from openinfer.synth.targets.cpu.emit.word_tiles import PairTile
from openinfer.synth.targets.cpu.machine import AVX512
from openinfer.synth.targets.cpu.schedule import scheduled

Function = FloatTile | LongTile | GroupTile | TapTile | ByteTile | ByteTapTile | Flips | ChannelTile | PairTile
EMPTY = re.compile(r"(?<![\w.])[01] \* |[+-] 0(?![\w.])| [*/] 1(?![\w.])|; [a-z]+ < 1;")
"""Terms of nothing, factors of one, and loops of one iteration."""


def functions(rows: int) -> list[Function]:
    """Functions of every kind, with this number of rows."""
    tiles = [
        FloatTile("f32", 8, rows, 2),
        FloatTile("f32", 8, rows, 2, has_half=True),
        FloatTile("f32", 8, rows, 2, is_window=True),
        FloatTile("f32", 8, rows, 2, "i8", has_zero=True),
        FloatTile("f32", 8, rows, 2, "f16"),
    ]
    bare = FloatTile("f32", 8, rows, 2, "i4", is_bare=True)
    return [
        *tiles,
        *(LongTile(tile, 64) for tile in tiles),
        *(GroupTile(bare, 32, scales, is_affine) for scales in ("f32", "f16") for is_affine in (False, True)),
        TapTile(FloatTile("f32", 8, rows, 2, left="f16")),
        ByteTile("u8", "i8", 8, rows, 2),
        ByteTapTile("u8", "i8", 8, rows, 2),
        Flips("u8", "i8", 8, 2),
        PairTile("i8", rows, 1, (rows, 1)),
        PairTile("i8", 2, rows, (rows, 1)),
        ChannelTile("f32", 8, rows, 3, 1, 1, tuple(range(rows + 2))),
        ChannelTile("f32", 8, rows, 1, 2, 1, tuple(range(0, 2 * rows, 2))),
    ]


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_positions_have_no_empty_terms(rows: int) -> None:
    for one in functions(rows):
        assert not EMPTY.findall(one.text), one.text


def test_a_single_row_has_no_strides_of_rows() -> None:
    for one in functions(1):
        assert "a_row" not in one.text
        assert "c_row" not in one.text or isinstance(one, GroupTile)
        assert "[r" not in one.text


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("vectors", ["with vectors", "without"])
def test_the_functions_compile_without_warnings(rows: int, vectors: str, tmp_path: Path) -> None:
    """Without vectors: the code for other compilers than gcc and clang, which no test here has."""
    text = HEAD + "#include <math.h>\n" + support_code(functions(rows))
    if vectors == "without":
        text = text.replace("defined(__GNUC__)", "0")
    (tmp_path / "tiles.c").write_text(text, encoding="ascii")
    command = ["gcc", *FAST, "-Wno-unused-function", "-fsyntax-only", "tiles.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_indices_of_whole_results_have_no_second_name() -> None:
    kernel = kernel_for("matmul", (5, 33), (33, 7), dtype=DTYPES["u8"], acc=DTYPES["i32"])
    text = printed(scheduled(kernel, AVX512, frozenset())[0], "f").text
    assert "y[row * 7 + column] = tile[row * 16 + column];" in text
    assert " = row;" not in text
    assert " = column;" not in text


def test_copied_bytes_are_not_converted() -> None:
    kernel = kernel_for("matmul", (5, 33), (33, 7), dtype=DTYPES["i8"], acc=DTYPES["i32"])
    text = printed(scheduled(kernel, AVX512, frozenset())[0], "f").text
    assert "= a[" in text
    assert "= b[" in text
    assert "(int32_t)a[" not in text
    assert "(int32_t)b[" not in text
