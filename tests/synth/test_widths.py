"""Code for devices with addresses of 32 bits: positions have 32 bits where that is proved to be enough, else 64."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests.differential.batches import narrow
from tests.synth.both_ways import agree
from tests.synth.golden_inputs import watched
from tests.synth.scheduled_in_c import kernel_for
from tests.synth.small_models import SMALL_MODELS

from openinfer import DeviceArch, ModelLoader, Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.ir.expr import Ref
from openinfer.loops.build import index
from openinfer.loops.dim import Dim
from openinfer.loops.expand import plain
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    Cast,
    Const,
    For,
    If,
    Kernel,
    Let,
    Load,
    ScalarVar,
    Select,
    Statement,
    Store,
)
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.plan import Plan
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu.machine import AVX2
from openinfer.synth.targets.cpu.schedule import scheduled

WIDE_POSITION = re.compile(r"for \(int64_t|\[[^\]]*\(int64_t\)|int64_t (s_|rows|columns|n0|row\b|column\b)")
"""An index of a loop, arithmetic in an index, a size or what tiles count with, in 64 bits."""
FEW = (1 << 10, 1 << 10)
MANY = (1 << 16, 1 << 16)
EXAMPLES = [name for name in watched() if name.startswith("example-graphs-")]
ROOMY = DeviceArch.from_json(
    {"device": {"type": "cpu"}, "features": {"hosted": True}, "cpu": {"isa": "cortex-m4", "vector_bits": 0}}
)
"""A microcontroller that has room for everything, and an operating system."""


def text_of(kernel: Kernel, bounds: dict[str, int] | None = None) -> str:
    return printed(plain(kernel), "k", index_bits=32, bounds=bounds).text


def kernels_of(plan: Plan) -> str:
    text = plan.files()["src/kernels.c"]
    assert isinstance(text, str)
    return text


# --- what is proved ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_positions_of_small_models_have_32_bits_on_a_microcontroller(name: str, tmp_path: Path) -> None:
    small = SMALL_MODELS[name]
    text = kernels_of(Synthesizer("cortex-m4").synthesize(small.saved(tmp_path), graph(small.text)))
    assert not WIDE_POSITION.findall(text)
    assert "for (int32_t " in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_positions_of_the_examples_have_32_bits_on_a_microcontroller(name: str, tmp_path: Path) -> None:
    found = watched()[name].write(tmp_path)
    assert found.model is not None
    with ModelLoader.open(found.model) as model:
        plan = Synthesizer(ROOMY).synthesize(model, graph(found.text), sizes=found.sizes)
        assert not WIDE_POSITION.findall(kernels_of(plan))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("relu", (FEW,)),
        ("matmul", (FEW, FEW)),
        ("softmax", (FEW,)),
        ("sort", ((1, 100),)),
        ("conv2d", ((1, 8, 12, 12), (16, 8, 3, 3))),
    ],
)
def test_loops_locals_and_partial_sums_have_32_bits_where_they_fit(
    name: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    kernel = plain(kernel_for(name, *shapes))
    for made in (kernel, scheduled(kernel, AVX2, frozenset())[0]):
        text = text_of(made)
        # The order of a sort is data, and stored as i64.
        assert not re.findall("int64_t (?![*])|[(]int64_t[)](?!i)", text)
        assert "for (int32_t " in text


def test_code_for_64_bits_has_no_narrow_positions() -> None:
    assert "int32_t" not in printed(kernel_for("relu", FEW), "k").text


# --- what is not ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shapes", "wanted"),
    [
        ("relu", (MANY,), "x[(int64_t)i1 * 65536 + i2]"),
        ("relu", ((2**31,),), "for (int64_t i1 = 0; i1 < 2147483648; ++i1)"),
        ("relu", ((2**31 - 1,),), "for (int32_t i1 = 0; i1 < 2147483647; ++i1)"),
        ("matmul", (MANY, MANY), "b[(int64_t)k3 * 65536 + i2]"),
        ("transpose", (MANY,), "x[(int64_t)i2 * 65536 + i1]"),
    ],
)
def test_what_exceeds_32_bits_is_computed_in_64(name: str, shapes: tuple[tuple[int, ...], ...], wanted: str) -> None:
    assert wanted in text_of(kernel_for(name, *shapes))


def test_tiles_of_more_than_a_narrow_position_counts_have_wide_ones() -> None:
    kernel, _ = scheduled(kernel_for("matmul", MANY, MANY), AVX2, frozenset())
    assert "for (int64_t n0 = 0" in text_of(kernel)
    assert "int32_t" not in text_of(kernel)


@pytest.mark.parametrize(
    ("bound", "head", "place"),
    [(1000, "const int32_t s_T)", "x[i * s_T + j]"), (1 << 20, "const int32_t s_T)", "x[(int64_t)i * s_T + j]")],
)
def test_sizes_are_as_wide_as_their_bounds_say(bound: int, head: str, place: str) -> None:
    text = text_of(_square(bound), {"T": bound})
    assert head in text
    assert place in text
    # Without bounds nothing is proved.
    assert "const int64_t s_T)" in text_of(_square(bound))


def test_an_extent_whose_parts_do_not_fit_is_computed_in_64_bits() -> None:
    size = Dim(1 << 20, Ref("T"))
    x, y = (Buffer(name, DTYPES["f32"], (size,)) for name in "xy")
    i = ScalarVar("i")
    loop = For(i, Const(size * size // 2000000, INDEX), (Store(y, (i,), Load(x, (i,))),))
    text = text_of(Kernel("k", (x,), (y,), (loop,)), {"T": 1 << 20})
    assert "i < (int64_t)s_T * (int64_t)s_T / 2000000" in text


def _square(bound: int) -> Kernel:
    size = Dim(bound, Ref("T"))
    x, y = (Buffer(name, DTYPES["f32"], (size, size)) for name in "xy")
    i, j = ScalarVar("i"), ScalarVar("j")
    inner = For(j, Const(size, INDEX), (Store(y, (i, j), Load(x, (i, j))),))
    return Kernel("k", (x,), (y,), (For(i, Const(size, INDEX), (inner,)),))


# --- data that becomes positions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "kind"), [("i8", "int32_t"), ("i32", "int32_t"), ("u32", "int64_t"), ("i64", "int64_t")]
)
def test_an_index_from_data_is_as_wide_as_the_data(dtype: str, kind: str) -> None:
    """It is counted from the end where it is negative, which cannot overflow there."""
    ids, y = Buffer("ids", DTYPES[dtype], (4,)), Buffer("y", DTYPES["i32"], (4,))
    i, place = ScalarVar("i"), ScalarVar("place")
    given = Cast(Load(ids, (i,)), INDEX)
    body: tuple[Statement, ...] = (
        Let(place, Select(given < 0, given + 100, given)),
        If(place < index(4), (Store(y, (place,), Const(1, DTYPES["i32"])),)),
    )
    assert f"const {kind} place =" in text_of(Kernel("k", (ids,), (y,), (For(i, index(4), body),)))


def test_an_index_from_data_that_only_is_a_coordinate_has_the_width_of_what_it_selects_from() -> None:
    """Its bounds were checked in the width of the data."""
    text = _gathered("i64", FEW)
    assert re.search(r"const int64_t v\d+ = ids\[i\d+\];", text)
    assert re.search(r"const int32_t v\d+ = \(int32_t\)\(ids_0 < 0 \? ", text)
    far = _gathered("i64", (2**31 + 1, 1))
    assert not re.search(r"const int32_t v\d+ = ", far)


def test_an_index_from_data_of_32_bits_is_checked_in_32_bits() -> None:
    text = _gathered("i32", FEW)
    assert "int64_t" not in text
    assert "int64_t" in _gathered("u32", FEW)


def _gathered(dtype: str, shape: tuple[int, ...]) -> str:
    record, kinds = OPS["gather"], (DTYPES["f32"], DTYPES[dtype])
    types = (TensorType(kinds[0], shape), TensorType(kinds[1], (4,)))
    call = infer(record, Call(types, complete(record, {"axis": 0})))
    return text_of(kernel_of(record, call, kinds))


def test_the_place_of_an_extreme_has_32_bits() -> None:
    text = text_of(kernel_for("argmax_axis", FEW, axis=1))
    assert re.search(r"int32_t s\d+ = 0;", text)
    assert not re.search(r"int64_t (?![*])", text)


@pytest.mark.parametrize(("dtype", "wanted"), [("i8", "(int32_t)ids[i1] == i2"), ("i64", "ids[i1] == (int64_t)i2")])
def test_a_marked_position_is_compared_in_32_bits_with_data_of_no_more(dtype: str, wanted: str) -> None:
    record = OPS["one_hot"]
    call = infer(record, Call((TensorType(DTYPES[dtype], (4,)),), complete(record, {"depth": 9})))
    assert wanted in text_of(kernel_of(record, call, [DTYPES[dtype]]))


def test_positions_that_memory_holds_have_32_bits_where_they_fit() -> None:
    assert "int64_t" not in text_of(kernel_for("resize", (1, 2, 8, 8), mode="linear", size=[20, 20]))
    assert "int32_t *starts" in text_of(kernel_for("mel_filterbank", (3, 33), bins=8, rate=8000))


# --- loops around kernels ---------------------------------------------------------------------------------------------

LOOP = """
dynamic { x: f32[100]; small: u16; large: i32; far: i64; }
volatile { sum: f32; }
block entry {
    loop i (i in 0..END) { op add(sum, x[INDEX]) >> sum; }
    return sum;
}
"""


@pytest.mark.parametrize(
    ("end", "index", "head", "picked"),
    [
        ("9", "i * 7", "for (int32_t i_i = 0; i_i < 9; ++i_i)", "oi_one(i_i * 7)"),
        ("small", "i", "for (int32_t i_i = 0, end_i = *", "oi_one(i_i)"),
        ("small", "i * small", "for (int32_t i_i = 0, end_i = *", "oi_one((int64_t)i_i * *"),
        ("large", "large + 1", "for (int32_t i_i = 0, end_i = *", "oi_one((int64_t)*"),
        ("large", "1 + large", "for (int32_t i_i = 0, end_i = *", "oi_one(1 + (int64_t)*"),
        ("large % 5", "i", "const int32_t first_i = 0, end_i = (int32_t)oi_index_rem(*", "oi_one(i_i)"),
        ("2147483648", "i % 5", "for (int64_t i_i = 0, end_i = INT64_C(2147483648); ", "oi_one(i_i % 5)"),
        ("far", "i", "for (int64_t i_i = 0, end_i = (int64_t)*", "oi_one(i_i)"),
    ],
)
def test_loop_indices_and_arithmetic_on_them_have_32_bits_where_they_fit(
    end: str, index: str, head: str, picked: str
) -> None:
    text = LOOP.replace("END", end).replace("INDEX", index)
    code = Synthesizer(narrow("generic")).synthesize(None, graph(text)).files()["src/model.c"]
    assert head in str(code)
    assert picked in str(code)
    wide = str(Synthesizer("generic").synthesize(None, graph(text)).files()["src/model.c"])
    assert "for (int64_t i_i = " in wide
    assert "int32_t first_i" not in wide


TEXT = """
sizes { T <= BOUND; }
dynamic { x: f32[T]; at: i64[3]; near: i32[2]; }
volatile { best: i64; picked: f32[3]; other: f32[2]; values: f32[T]; order: i64[T]; sums: f32[T]; }
block entry {
    op argmax_axis(x, axis=0) >> best;
    op gather(x, at, axis=0) >> picked;
    op gather(x, near, axis=0) >> other;
    op sort(x, axis=0) >> values, order;
    op cumsum(x, axis=0) >> sums;
    return best, picked, other, values, order, sums;
}
"""


@pytest.mark.parametrize("bound", [40, 1 << 20])
def test_code_with_narrow_positions_gives_the_same_results(bound: int) -> None:
    """Indices from data, a sort and dynamic sizes, some of whose products fit 32 bits at the smaller bound only."""
    x = np.random.default_rng(5).integers(-9, 9, 33).astype(np.float32)
    given = {"x": x, "at": np.array([-1, 5, -33]), "near": np.array([32, -2], np.int32)}
    agree(TEXT.replace("BOUND", str(bound)), inputs=lambda _: given, steps=1, device=narrow("generic"))
