"""Forms of launches that the small cases of ops do not reach, on lavapipe: long rows, squares, columns, merged runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.in_c import judge
from tests.synth.vulkan.on_device import Module, Prepared, prepared, run_modules

from openinfer import Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.ops import OPS, Case
from openinfer.synth.targets.facts import Numerics


def case_of(number: int, name: str, dtype: str, shape: tuple[int, ...], params: dict[str, Any]) -> Prepared:
    kind = DTYPES[dtype]
    values = np.random.default_rng(number).integers(0, 2 if kind.kind == "bool" else 7, shape)
    return prepared(OPS[name], Case((values.astype(kind.array),), (kind,), params), number, kind)


def found(folder: Path, *wanted: tuple[str, str, tuple[int, ...], dict[str, Any]]) -> list[str]:
    """The forms of some calls, which are right on the device."""
    cases = [case_of(number, *one) for number, one in enumerate(wanted)]
    for one, outcome in zip(cases, run_modules([Module([one.job for one in cases])], folder), strict=True):
        assert not outcome.damage
        judge(one, outcome.results, outcome.status)
    return [one.job.launches.launches[0].form.split(":")[0] for one in cases]


def test_transposes_of_every_size_of_element(tmp_path: Path) -> None:
    kinds = [("f32", 32), ("bf16", 40), ("i8", 48), ("i8", 45), ("u4", 40), ("bool", 33), ("i64", 17)]
    calls = [("transpose", dtype, (2, 37, columns), {"perm": (0, 2, 1)}) for dtype, columns in kinds]
    assert found(tmp_path, *calls) == ["tiles", "tiles", "tiles", "tiles", "threads", "tiles", "tiles"]


def test_transposes_of_words_into_rows_of_every_length(tmp_path: Path) -> None:
    """Rows that are written 16, 8 and 4 bytes at a time; the last square is not full along either side."""
    calls = [
        ("transpose", dtype, (2, rows, 60), {"perm": (0, 2, 1)}) for dtype in ("f32", "i32") for rows in (68, 70, 71)
    ]
    assert found(tmp_path, *calls) == ["tiles"] * 6


def test_rows_of_several_subgroups_and_columns(tmp_path: Path) -> None:
    calls: list[tuple[str, str, tuple[int, ...], dict[str, Any]]] = [
        ("softmax", "f32", (3, 500), {"axis": 1}),
        ("softmax", "bf16", (3, 1001), {"axis": 1}),
        ("softmax", "f32", (5, 131), {"axis": 1}),
        ("sum_axis", "i8", (4, 1003), {"axis": 1}),
        ("sum_axis", "f32", (70, 33), {"axis": 0}),
        ("sum_axis", "i32", (2, 40, 64), {"axis": 1}),
    ]
    assert found(tmp_path, *calls) == ["rows"] * 6


def test_running_totals_of_rows_columns_and_a_long_row(tmp_path: Path) -> None:
    calls: list[tuple[str, str, tuple[int, ...], dict[str, Any]]] = [
        ("cumsum", "f32", (3, 1000), {"axis": 1}),
        ("cumsum", "i32", (2, 5001), {"axis": 1, "exclusive": True, "reverse": True}),
        ("cumsum", "bf16", (70, 2, 40), {"axis": 0, "reverse": True}),
        ("cumsum", "u4", (3, 300), {"axis": 1, "acc": DTYPES["i32"]}),
        ("cumsum", "f32", (90, 33), {"axis": 0, "exclusive": True}),
        ("cumprod", "f32", (5, 66), {"axis": 1}),
        ("cumprod", "i64", (66, 16), {"axis": 0}),
    ]
    assert found(tmp_path, *calls) == ["scan"] * 7
    assert found(tmp_path, ("cumsum", "i64", (70_001,), {"axis": 0})) == ["rows"]


def test_orders_of_more_elements_than_a_group_shares(tmp_path: Path) -> None:
    calls: list[tuple[str, str, tuple[int, ...], dict[str, Any]]] = [
        ("sort", "f32", (2, 2300), {"axis": 1}),
        ("topk", "i8", (1100, 2), {"axis": 0, "k": 9}),
    ]
    assert found(tmp_path, *calls) == ["order"] * 2


def test_parts_of_results_of_few_bits_are_computed_to_few_bits(tmp_path: Path) -> None:
    """As for a device that flushes subnormal numbers: by functions of the device itself, and bf16 rounded by sums."""
    flushing = Numerics("last bit", "last bit", "two roundings", "flushed")
    values = np.concatenate([np.linspace(-12, 40, 300), np.linspace(-3, 3, 212)]).astype(DTYPES["bf16"].array)
    cases = [
        prepared(OPS[name], Case((values,), (DTYPES["bf16"],), {}), number, DTYPES["bf16"], flushing)
        for number, name in enumerate(("exp", "tanh", "gelu", "silu", "sigmoid", "softmax", "neg"))
    ]
    text = "".join(code.code.text for one in cases for code in one.job.codes)
    assert all(word in text for word in ("oi_few_exp_f32", "oi_few_tanh_f32", "oi_few_gelu_f32", "oi_quads_bf16"))
    outcomes = run_modules([Module([one.job for one in cases], flushing)], tmp_path)
    for one, outcome in zip(cases, outcomes, strict=True):
        judge(one, outcome.results, outcome.status)


@pytest.mark.parametrize("dtype", ["i8", "i16", "u8", "u16"])
def test_narrow_integers_are_computed_in_32_bits_and_wrapped(dtype: str) -> None:
    """A compiler that does not wrap all arithmetic on narrow types has none of it: only loads and stores name these."""
    text = f"""
        dynamic {{ a: {dtype}[96]; b: {dtype}[96]; }}
        volatile {{ t: {dtype}[96]; u: {dtype}[96]; y: {dtype}[96]; z: f32[96]; }}
        block entry {{
            op sub(a, b) >> t; op max(t, b) >> u; op mul(u, a) >> t; op add(t, b) >> t; op min(t, u) >> y;
            op sub(b, y) >> u; op cast(u, to=f32) >> z; return y, z;
        }}
    """
    plan = Synthesizer("lavapipe", name="narrow").synthesize(None, graph(text))
    kernels = "".join(str(code) for name, code in plan.project.files().items() if name.startswith("shaders/k"))
    named = [line for line in kernels.splitlines() if f"int{dtype[1:]}_t " in line]
    assert not named, named
    kind = DTYPES[dtype]
    low, high = int(kind.minimum), int(kind.maximum)
    ends = np.array([low, high, 0, 1, high // 2 + 1, 3], kind.array)
    a, b = (np.concatenate([one.ravel(), one.ravel(), one.ravel()])[:96] for one in np.meshgrid(ends, ends))
    found = plan.build()({"a": a, "b": b})
    with np.errstate(all="ignore"):
        larger = np.maximum(a - b, b)
        wanted = np.minimum(larger * a + b, larger)
        numbers = (b - wanted).astype(np.float32)
    assert np.array_equal(found[0], wanted)
    assert np.array_equal(found[1], numbers)
