"""What an op promises, as devices are held to it: the reference keeps its own promises, and gross errors break them."""

from zlib import crc32

import numpy as np
import pytest

from openinfer.ops import OPS, Call, OpError, ReferenceKernel, TensorType, complete, infer
from openinfer.ops.agreement import Contract

NAMES = sorted({record.name for record in OPS.values()})


@pytest.mark.parametrize("start", range(0, len(NAMES), 41))
def test_the_reference_keeps_the_promises_of_every_op(start: int) -> None:
    for name in NAMES[start : start + 41]:
        record = OPS[name]
        rng = np.random.default_rng(crc32(name.encode()))
        dtype = record.dtypes[int(rng.integers(len(record.dtypes)))]
        case = next(iter(record.cases(rng, dtype)))
        pairs = zip(case.arrays, case.dtypes, strict=True)
        types = tuple(None if array is None or kind is None else TensorType(kind, array.shape) for array, kind in pairs)
        call = infer(record, Call(types, complete(record, case.params)))
        try:
            with np.errstate(all="ignore"):
                results = ReferenceKernel(record, call, case.dtypes)(case.arrays)
        except OpError:
            continue
        contract = Contract(record, call, case.dtypes)
        assert contract.disagreement(case.arrays, results) is None, name
        assert contract.disagreement(case.arrays, results, is_flushed=True) is None, name
        first = results[0]
        if (
            first.size
            and record.tolerance.kind == "exact"
            and dtype.name in ("f32", "i32")
            and first.dtype.kind in "fi"
        ):
            wrong = first.copy()
            wrong.flat[-1] = 3 if wrong.flat[-1] != 3 else 4
            assert contract.disagreement(case.arrays, (wrong, *results[1:])) is not None, name
