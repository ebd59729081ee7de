"""Kernels of CUDA: compilers take them, and they say what they must. What they compute is tested on a GPU."""

import re
from pathlib import Path

from tests.synth.cuda.kernels import cases, compiled, compilers, prepared, source
from tests.synth.in_c import cases_of

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS
from openinfer.synth.targets.cuda.dialect import CUDA, FLAGS

SAMPLE = {
    "add": ("u4", "i64"),
    "attn": ("bf16",),
    "cast": ("f16", "t1"),
    "gather": ("i8",),
    "linear": ("f32", "bf16"),
    "quantize": ("f32",),
    "softmax": ("f64", "f8"),
    "sort": ("i16", "bool"),
}
"""Forms of launches, and elements of every width."""


def test_a_sample_of_ops_compiles(tmp_path: Path) -> None:
    found = []
    for name, dtypes in SAMPLE.items():
        for number, dtype in enumerate(dtypes):
            case = next(iter(cases_of(name, DTYPES[dtype], 1)))
            found.append(prepared(OPS[name], case, number, DTYPES[dtype]))
    names = [code.name for one in found for code in one.job.codes]
    for compiler in compilers():
        assembly = compiled(source(found), tmp_path, compiler)
        assert [name for name in names if f".entry {name}(" not in assembly] == [], compiler


def test_arithmetic_is_what_the_code_says() -> None:
    """A product and a sum that became one instruction would round once where others count on two roundings."""
    assert {"-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false"} <= set(FLAGS)


def test_threads_wait_only_for_those_that_do_the_same() -> None:
    """A row has two threads there: a warp whose other rows are outside must not be waited for."""
    text = source(cases(OPS["softmax"], 1))
    exchanges = re.findall(r"__shfl_xor_sync\((\S+), \w+, (\d+)\)", text)
    assert ("oi_team(2)", "1") in exchanges
    assert ("~0u", "1") not in exchanges, "no row of these cases has a whole warp"


def test_no_buffer_is_called_as_a_word_of_the_language() -> None:
    assert {"new", "this", "template", "status", "own", "operator"} <= CUDA.reserved
