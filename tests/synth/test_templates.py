"""What the shared printer is handed, and that it is right without: plain loops, and one record for new instructions."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.synth.in_c import Prepared, call_of, cases_of, compiled, executed, judge, prepared
from tests.synth.scheduled_in_c import kernel_for

from openinfer.dtypes import DTYPES
from openinfer.loops.expand import plain
from openinfer.ops import OPS
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.cpu import intrinsics
from openinfer.synth.targets.cpu.emit.byte_tiles import Dot
from openinfer.synth.targets.cpu.emit.templates import CPU
from openinfer.synth.targets.cpu.emit.tiles import VectorType
from openinfer.synth.targets.cpu.intrinsics import Intrinsic, VectorSet
from openinfer.synth.targets.cpu.machine import AVX2
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cstyle.statements import printed


def test_kernels_are_right_in_plain_loops_where_no_schedule_adds_templates(tmp_path: Path) -> None:
    cases: list[Prepared] = []
    for name in ("matmul", "conv1d", "softmax", "cumsum", "sort"):
        for case in cases_of(name, DTYPES["f32"], 2):
            kernel = plain(kernel_of(OPS[name], call_of(OPS[name], case), case.dtypes))
            code = printed(kernel, f"case{len(cases)}", C)
            assert "tile" not in code.text
            cases.append(replace(prepared(OPS[name], case, len(cases)), code=code))
    library = compiled(cases, tmp_path)
    for number, one in enumerate(cases):
        judge(one, *executed(one, library, number))


def test_the_instructions_of_a_new_processor_are_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    new = VectorSet(
        16,
        "new.h",
        fma={"f32": Intrinsic("defined(__NEW__)", ("new_fma(a, b, c)",))},
        dots={("i8", "i8"): (Intrinsic("defined(__NEW_DOT__)", ("(({vector})new_dot(a, b, s))",)),)},
    )
    monkeypatch.setattr(intrinsics, "VECTOR_SETS", (*intrinsics.VECTOR_SETS, new))
    fma, dot = VectorType("f32", 4).text, Dot("i8", "i8", 4).text
    assert "#elif defined(__NEW__)\n#include <new.h>\n#define oi_fma_f32x4(a, b, c) new_fma(a, b, c)\n#else" in fma
    assert "#elif defined(__NEW_DOT__)\n#include <new.h>\n#define oi_dot_i8i8x4(a, b, s) ((oi_u32x4)new_dot" in dot
    # What it lacks is computed in plain arithmetic, or by what others of its width have.
    assert "new" not in VectorType("f64", 2).text + VectorType("f32", 8).text + Dot("u8", "i8", 4).text


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("linear", ((32, 64), (64, 64))), ("softmax", ((4, 64),)), ("conv2d", ((1, 8, 12, 12), (16, 8, 3, 3)))],
)
def test_positions_have_the_type_that_the_dialect_says(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    narrow = replace(C, types={**C.types, "index": "position_t"})
    kernel, _ = scheduled(kernel_for(name, *shapes), AVX2, frozenset())
    text = printed(kernel, "case0", narrow, CPU).text
    assert "for (position_t " in text
    assert "for (int64_t " not in text


@pytest.mark.parametrize(
    ("shapes", "wanted", "unwanted"),
    [
        (((1, 8), (8, 16)), "float sums[16] = {0};", "i1"),
        (((3, 8), (8, 16)), "sums[i2] = sums[i2] + a[i1 * 8 + k3] * b[k3 * 16 + i2];", "column"),
        (((3, 8), (8, 128)), "column < 64;", "columns"),
        (((3, 8), (8, 70)), "const int64_t columns = 70 - n0 < 64 ? 70 - n0 : 64;", "sums[70]"),
        (((3, 1), (1, 16)), "sums[i2] = sums[i2] + a[i1] * b[i2];", "k3"),
    ],
)
def test_sums_side_by_side_say_nothing_that_is_known(
    shapes: tuple[tuple[int, ...], ...], wanted: str, unwanted: str
) -> None:
    text = printed(kernel_for("matmul", *shapes), "case0", C, CPU).text
    assert wanted in text
    assert unwanted not in text.partition("{")[2]
