"""What drivers may do as they like, and shaders therefore do not leave to them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.synth.vulkan.on_device import NUMERICS, Module, prepared, run_modules

from openinfer import Plan, Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.ops import OPS, Case
from openinfer.synth.targets.facts import Numerics

DYNAMIC = """
sizes { T <= 255; }
dynamic { q: f32[1, 2, T, 32]; x: f32[1, 1, T]; n: i64[T]; }
volatile { y: f32[1, 2, T, 32]; z: f32[1, 1, (T-3)/2+1]; r: i64[T]; }
block entry { op sdpa(q, q, q) >> y; op max_pool(x, kernel=[3], strides=[2]) >> z; op mod(n, 5) >> r; return y, z, r; }
"""


def shaders(plan: Plan) -> str:
    """The kernels of a project, without comments."""
    texts = [str(text) for path, text in plan.files().items() if path.endswith((".comp", ".glsl"))]
    return re.sub(r"/\*.*?\*/", "", "\n".join(texts), flags=re.DOTALL)


def test_remainders_of_negative_numbers_are_computed_from_quotients() -> None:
    """GLSL does not say what % is of them; NVIDIA's driver has -4 % 5 as 2 in 64 bits. Truth values are no numbers."""
    text = shaders(Synthesizer("vulkan", name="net").synthesize(None, graph(DYNAMIC)))
    assert "oi_rem_i64(" in text
    assert "a - int64_t(a / b) * b" in text
    assert not re.search(r"s_T - 3\) %", text)
    assert re.search(r"\? 1 : 0\) \+ 1", text)


ZEROS = """
dynamic { x: f16[8]; w: f32[8]; }
volatile { none: f16[8]; zero: f32[8]; y: f16[8]; angle: f32[8]; z: f32[8]; n: f32[8]; }
block entry {
    op mul(none, x) >> y; op tan(zero) >> angle; op mul(angle, w) >> z; op mul(-0.0, w) >> n;
    return y, z, n;
}
"""


def test_no_compiler_sees_a_zero_that_something_is_multiplied_by() -> None:
    """Mesa takes the product for 0, also where a number has another sign; after it was rounded, or a function, too."""
    text = shaders(Synthesizer("lavapipe", name="net").synthesize(None, graph(ZEROS)))
    assert "oi_from_f16(oi_to_f16(OI_ZERO))" in text
    assert "oi_tan_f32(OI_ZERO)" in text
    assert "-OI_ZERO *" in text
    assert not re.search(r"(?<![\d.])0\.0f\)? \*", text)


def test_every_query_of_an_unknown_number_is_a_thread() -> None:
    """One thread for all of them would run more iterations than lavapipe lets it; after that, loops end silently."""
    text = shaders(Synthesizer("lavapipe", name="net").synthesize(None, graph(DYNAMIC)))
    assert "if (thread < 2 * s_T)" in text


def test_no_compiler_sees_that_a_number_is_unpacked_as_it_was_packed() -> None:
    declared = "dynamic { x: f16[100]; } volatile { a: f16[100]; y: f16[100]; }"
    text = graph(f"{declared} block entry {{ op add(x, 1.0) >> a; op sqrt(a) >> y; return y; }}")
    code = Synthesizer("h200-vulkan", name="net").synthesize(None, text).project.code()
    (shader,) = (own for path, own in code.items() if path.endswith("_sqrt.comp"))
    assert "oi_from_f16(oi_to_f16(" in shader
    assert "packHalf2x16(vec2(x, 0.0f)) ^ gl_WorkGroupID.z" in code["shaders/support.glsl"]


OWN, OTHER = replace(NUMERICS, halves="exact"), replace(NUMERICS, halves="inexact")


@pytest.mark.parametrize(("numerics", "function"), [(OWN, "unpackHalf2x16"), (OTHER, "oi_from_f16")])
def test_every_f16_is_right_whatever_becomes_of_subnormal_numbers(
    numerics: Numerics, function: str, tmp_path: Path
) -> None:
    """Several to a thread, and one by one."""
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    parts = numbers, numbers[-0x8001:]
    ones = [
        prepared(OPS["cast"], Case((part,), (DTYPES["f16"],), {"to": DTYPES["f32"]}), number, DTYPES["f16"], numerics)
        for number, part in enumerate(parts)
    ]
    assert function in ones[0].job.codes[0].code.text
    outcomes = run_modules([Module([one.job for one in ones], numerics)], tmp_path)
    for part, outcome in zip(parts, outcomes, strict=True):
        np.testing.assert_array_equal(outcome.results[0], part.astype(np.float32))


@pytest.mark.parametrize(("numerics", "function"), [(OWN, "packHalf2x16"), (OTHER, "oi_to_f16")])
def test_numbers_become_the_nearest_f16(numerics: Numerics, function: str, tmp_path: Path) -> None:
    """Those halfway between two become the even one, also below the least normal one."""
    least = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    halfway = (least[:-1] + least[1:]) / 2
    numbers = np.concatenate([halfway, np.nextafter(halfway, 0), np.nextafter(halfway, np.inf, dtype=np.float32)])
    numbers = np.concatenate([numbers, -numbers, [65519, 65520, 65536, 3e38, np.inf, 1e-30, -0.0, np.nan]])
    parts = numbers.astype(np.float32), numbers[1:].astype(np.float32)
    ones = [
        prepared(OPS["cast"], Case((part,), (DTYPES["f32"],), {"to": DTYPES["f16"]}), number, DTYPES["f32"], numerics)
        for number, part in enumerate(parts)
    ]
    assert function in ones[0].job.codes[0].code.text
    outcomes = run_modules([Module([one.job for one in ones], numerics)], tmp_path)
    for part, outcome in zip(parts, outcomes, strict=True):
        with np.errstate(all="ignore"):
            wanted = part.astype(np.float16)
        np.testing.assert_array_equal(outcome.results[0], wanted)


def test_threads_of_a_subgroup_exchange_values_with_those_they_mean(tmp_path: Path) -> None:
    rows = (2.0 ** np.arange(64) * np.ones((3, 1))).astype(np.float32)[:, :24]
    one = prepared(OPS["sum_axis"], Case((rows,), (DTYPES["f32"],), {"axis": 1}), 0, DTYPES["f32"])
    assert "subgroupShuffleXor" in Module([one.job]).text()
    (outcome,) = run_modules([Module([one.job])], tmp_path)
    assert outcome.results[0].ravel().tolist() == [2.0**24 - 1] * 3
