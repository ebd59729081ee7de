"""What shaders need of a device: what the printer says, what their text says, and what a compiler finds."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from tests.everything import HAS_EVERYTHING
from tests.synth.vulkan.on_device import Module, compiled, prepared
from tests.synth.vulkan.spirv import CAPABILITY, DENORM_PRESERVE, contracted, instructions, needed, problems
from tests.synth.vulkan.suite import cases

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS, Case
from openinfer.synth.targets.cstyle.statements import Printed
from openinfer.synth.targets.cstyle.support import _in_files
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.vulkan.features import features_of
from openinfer.synth.targets.vulkan.shader import functions, support_texts
from openinfer.synth.targets.vulkan.support import SUPPORT

EXACT = Numerics()
INEXACT = Numerics("last bit", "last bit", "two roundings", "flushed", "inexact")
FUSED = Numerics(division="last bit", root="last bit", subnormals="flushed")
STRIDE = 1 if HAS_EVERYTHING else 10
"""Of the cases of an op, one each per dtype, those whose text is read."""
WORDS = {
    Feature.F64: r"double\w*|oi_doubles|\w+Double\w*|[\d.]+(?:e[+-]?\d+)?lf",
    Feature.F16: r"float16_t|f16vec\d",
    Feature.I64: r"u?int64_t|oi_u?int64s|\w+(?:Int|Uint)64\w*|u?int64BitsToDouble|packU?[Ii]nt2x32|\d\w*l",
    Feature.I16: r"u?int16_t",
    Feature.I8: r"u?int8_t",
    Feature.STORE8: r"oi_u?int8s",
    Feature.STORE16: r"oi_u?int16s",
    Feature.SUBGROUPS: r"subgroup(?:Inclusive|Exclusive|Clustered)?(?:Add|Mul|Min|Max|And|Or|Xor)",
    Feature.SHUFFLE: r"subgroupShuffle\w*",
}
"""What a text of shaders has where they need a feature."""
PLAIN = "#version 460\nlayout(local_size_x = 1) in;\nlayout(std430, binding = 0) buffer b { float v[]; };\n"


def seen(text: str) -> set[Feature]:
    """The features that the words of a text need."""
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    # Numbers become narrow where they are stored, which is no arithmetic unless they are constants.
    code = re.sub(r"(?<== )(?:int(?:8|16)_t\((?!-?\d+\))|uint(?:8|16)_t\(uint32_t\((?!\d+\)))", "(", code)
    return {feature for feature, words in WORDS.items() if re.search(rf"(?<![\w.])(?:{words})(?!\w)", code)}


@pytest.mark.parametrize("numerics", [EXACT, INEXACT, FUSED], ids=["exact", "inexact", "fused"])
def test_support_functions_need_what_their_text_says(numerics: Numerics) -> None:
    """Those of a function are the features of a launch that calls it and does nothing else."""
    names = {*SUPPORT.generated(), *(name for folder in SUPPORT.folders for name in _in_files(*folder))}
    nothing = Printed("", "", (), (), (), frozenset(), (), can_fail=False)
    for name in sorted(names):
        needs = features_of(replace(nothing, needs=frozenset({name})), numerics)
        assert needs - {Feature.ADDRESSES} == seen("\n".join(support_texts((name,), numerics))), name


@pytest.mark.parametrize("numerics", [EXACT, INEXACT, FUSED], ids=["exact", "inexact", "fused"])
def test_launches_need_what_their_text_says(numerics: Numerics) -> None:
    for name, record in OPS.items():
        for code in (code for one in cases(record, 1, numerics, STRIDE) for code in one.job.codes):
            needs = features_of(code.code, numerics)
            assert needs == {Feature.ADDRESSES, *seen("\n".join(functions([code], numerics)))}, name


@pytest.mark.parametrize("numerics", [EXACT, INEXACT], ids=["exact", "inexact"])
@pytest.mark.parametrize("name", ["softplus", "sqrt", "div", "cast"])
def test_launches_need_what_a_compiler_finds(name: str, numerics: Numerics, tmp_path: Path) -> None:
    for one in cases(OPS[name], 1, numerics, 3):
        module = Module([one.job], numerics)
        file = compiled(module.text(), tmp_path, 0)
        assert [*problems(file, module.features)] == []
        assert needed([*instructions(file.read_bytes())]) == module.features


@pytest.mark.parametrize(("kind", "feature"), [("i64", Feature.I64), ("u64", Feature.I64), ("f64", Feature.F64)])
def test_elements_that_are_only_moved_need_their_type(kind: str, feature: Feature, tmp_path: Path) -> None:
    array = np.arange(3).reshape(1, 3).astype(DTYPES[kind].array)
    case = Case((array,), (DTYPES[kind],), {"axes": (0,)})
    module = Module([prepared(OPS["squeeze"], case, 0, DTYPES[kind]).job])
    assert feature in module.features
    assert [*problems(compiled(module.text(), tmp_path, 0), module.features)] == []


def test_small_integers_from_memory_become_floats_without_arithmetic_on_them(tmp_path: Path) -> None:
    arrays = np.ones((1, 2, 4), np.float32), np.arange(2, dtype=np.uint8)
    kinds = DTYPES["f32"], DTYPES["u8"]
    module = Module([prepared(OPS["rope"], Case(arrays, kinds, {}), 0, DTYPES["f32"]).job])
    assert Feature.I8 not in module.features
    assert [*problems(compiled(module.text(), tmp_path, 0), module.features)] == []


def test_roots_and_quotients_take_f64_only_where_those_of_f32_are_inexact() -> None:
    for name in ("sqrt", "div"):
        needs = {}
        for numerics in (EXACT, INEXACT):
            codes = [code for one in cases(OPS[name], 3, numerics) if one.dtype.name == "f32" for code in one.job.codes]
            needs[numerics] = frozenset[Feature]().union(*(features_of(code.code, numerics) for code in codes))
        assert needs[INEXACT] - needs[EXACT] >= {Feature.F64}, name


def test_code_for_devices_that_round_otherwise_is_left_out() -> None:
    (one,) = (one for one in cases(OPS["softplus"], 1) if one.dtype.name == "f64")
    assert "soft_fma" in "".join(functions(one.job.codes, INEXACT))
    assert "soft_fma" not in "".join(functions(one.job.codes, EXACT))


@pytest.mark.parametrize("subnormals", ["exact", "flushed", "when_asked"])
def test_subnormal_numbers_are_kept_where_a_device_is_asked(
    subnormals: Literal["exact", "flushed", "when_asked"], tmp_path: Path
) -> None:
    (one,) = (one for one in cases(OPS["add"], 1) if one.dtype.name == "f32")
    text = Module([one.job], Numerics(subnormals=subnormals)).text()
    found = [*instructions(compiled(text, tmp_path, 0).read_bytes())]
    assert ((CAPABILITY, [DENORM_PRESERVE]) in found) is (subnormals == "when_asked")


@pytest.mark.parametrize(("before", "is_contracted"), [("precise ", False), ("", True)])
def test_a_sum_that_may_be_fused_is_seen(before: str, *, is_contracted: bool, tmp_path: Path) -> None:
    main = f"void main() {{ {before}float x = v[0] * v[1] + v[2]; v[3] = x; }}\n"
    found = [*instructions(compiled(PLAIN + main, tmp_path, 0).read_bytes())]
    assert bool(contracted(found)) is is_contracted


def test_a_feature_that_is_not_known_of_is_seen(tmp_path: Path) -> None:
    file = compiled(PLAIN + "void main() { v[0] = float(double(v[1]) / 3.0lf); }\n", tmp_path, 0)
    assert [one for one in problems(file, frozenset({Feature.F64})) if "needs" in one] == []
    assert [one for one in problems(file, frozenset()) if "needs" in one] != []
