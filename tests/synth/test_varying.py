"""Calls whose extents vary, as one call with dynamic sizes: it means the same at every value of them."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
from tests.synth.in_c import call_of, cases_of

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.expand import plain
from openinfer.loops.interpret import KernelFailedError, interpret
from openinfer.ops import OPS, Call, Case, OpError, OpRecord, TensorType, complete, infer
from openinfer.ops.agreement import Contract
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.varying import GeneralCall, VaryingExtents

F32 = DTYPES["f32"]
NAMES = sorted({record.name for record in OPS.values()})
MOST = 40
"""Elements of a tensor, for the interpreter is slow."""


def added(*shapes: tuple[int, ...]) -> Call:
    return infer(OPS["add"], Call(tuple(TensorType(F32, shape) for shape in shapes), complete(OPS["add"], {})))


def seen_before(record: OpRecord, call: Call, stored: Sequence[DType | None]) -> GeneralCall | None:
    """The call when every extent but those of 1 had another value before."""
    varying = VaryingExtents()
    others = [
        None if one is None else TensorType(one.dtype, tuple(n + 7 if n > 1 else n for n in one.shape))
        for one in call.inputs
    ]
    assert varying.general(record, Call(tuple(others), call.params), stored) is None
    return varying.general(record, call, stored)


def test_what_has_varied_is_a_size_and_what_was_equal_stays_one() -> None:
    varying, stored = VaryingExtents(), (F32, F32)
    assert varying.general(OPS["add"], added((2, 4), (2, 4)), stored) is None
    assert varying.general(OPS["add"], added((2, 4), (2, 4)), stored) is None, "nothing has varied"
    found = varying.general(OPS["add"], added((3, 4), (3, 4)), stored)
    assert found is not None
    assert (found.sizes, repr(found.call.outputs[0].shape)) == ({"s0": 3}, "(s0, 4)")
    assert varying.general(OPS["add"], added((1, 4), (5, 4)), stored) is None, "one of them stretches"


@pytest.mark.parametrize("start", range(0, len(NAMES), 55))
def test_ops_mean_the_same_with_sizes_as_with_numbers(start: int) -> None:
    count = 0
    for name in NAMES[start : start + 55]:
        record = OPS[name]
        dtype = record.dtypes[len(name) % len(record.dtypes)]
        for case in islice((one for one in cases_of(name, dtype) if is_small(record, one)), 6):
            call = call_of(record, case)
            general = seen_before(record, call, case.dtypes)
            if general is not None:
                count += 1
                check(record, call, case, general)
    assert count > 60


def is_small(record: OpRecord, case: Case) -> bool:
    sizes = [array.size for array in case.arrays if array is not None]
    return max(sizes, default=0) <= MOST and call_of(record, case).outputs[0].size <= MOST


def check(record: OpRecord, call: Call, case: Case, general: GeneralCall) -> None:
    kernel = plain(kernel_of(record, general.call, case.dtypes))
    arrays = [array for array in case.arrays if array is not None]
    contract = Contract(record, call, case.dtypes)
    with np.errstate(all="ignore"):
        try:
            results = interpret(kernel, arrays, general.sizes)
        except KernelFailedError:
            with pytest.raises(OpError):
                contract.disagreement(case.arrays, ())
            return
        found = contract.disagreement(case.arrays, results)
    assert found is None, f"'{record.name}' at {general.sizes}: {found}"
