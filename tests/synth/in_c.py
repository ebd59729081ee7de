"""Single ops through their lowering, C and a compiler, compared with the simulator's reference.

All kernels of an op go into one file, which is compiled once; operands are passed as the bytes a model file would hold.
"""

import ctypes
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from tests.ops.harness import Question, compare

from openinfer.dtypes import DType, pack, unpack
from openinfer.loops.expand import plain
from openinfer.loops.ir import Bind, Buffer, Contraction, For, Kernel, walk
from openinfer.loops.verify import verify
from openinfer.ops import OPS, Array, Call, Case, OpError, OpRecord, ReferenceKernel, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.ops.numeric import entering
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.c.support import support_code
from openinfer.synth.targets.cpu.divide import scratch_elements
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cstyle.statements import Printed

HEAD = "#include <stdbool.h>\n#include <stdint.h>\n#include <stddef.h>\n#include <string.h>\n"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared"]
# Support functions that a case does not call are there all the same when another case of the file does.
FLAGS += ["-Wno-unused-function"]


@dataclass(frozen=True)
class Prepared:
    """One case, ready to be compiled."""

    record: OpRecord
    case: Case
    call: Call
    code: Printed
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    packings: Mapping[str, Packing] = field(default_factory=dict)


Schedule = Callable[[Kernel], Kernel]


def call_of(record: OpRecord, case: Case) -> Call:
    """The call that a case is; refused as it would be in a graph."""
    types = tuple(
        None if array is None else TensorType(kind, array.shape)  # type: ignore[arg-type]
        for array, kind in zip(case.arrays, case.dtypes, strict=True)
    )
    return infer(record, Call(types, complete(record, case.params)))


def prepared(record: OpRecord, case: Case, number: int, schedule: Schedule | None = None) -> Prepared:
    call = call_of(record, case)
    kernel = plain(kernel_of(record, call, case.dtypes))
    if schedule is not None:
        kernel = schedule(kernel)
    assert verify(kernel) == [], f"the kernel of '{record.name}' breaks rules of the loop IR"
    code = printed(kernel, f"case{number}")
    scratch = kernel.scratch
    if is_in_parts(kernel):
        code, scratch = in_parts(kernel, f"case{number}"), parts_scratch(kernel)
    return Prepared(record, case, call, code, kernel.inputs, kernel.outputs, scratch)


PARTS = 3
"""In how many parts tests run kernels that can be divided."""


def is_in_parts(kernel: Kernel) -> bool:
    """Whether parts share the iterations of a loop, or of a tile."""
    for one in walk(kernel.body):
        tile = one.template if isinstance(one, Contraction) else None
        if (isinstance(one, For) and one.bind is Bind.PART) or (isinstance(tile, CpuTile) and tile.divided is not None):
            return True
    return False


def in_parts(kernel: Kernel, name: str, index_bits: int = 64) -> Printed:
    """A kernel in parts, and a function that runs them one after the other, the last part first."""
    code = printed(kernel, f"{name}_own", PARTS, index_bits=index_bits)
    buffers = (*kernel.inputs, *kernel.outputs, *kernel.scratch)
    parameters = ", ".join(f"void *{buffer.name}" for buffer in buffers)
    names = ", ".join(buffer.name for buffer in buffers)
    text = f"""{code.prototype}
{code.text}
void {name}({parameters})
{{
    const {name}_own_call call = {{ {names} }};
    for (int64_t part = {PARTS - 1}; part >= 0; --part) {name}_own_part(&call, part);
}}
"""
    return replace(code, text=text)


def parts_scratch(kernel: Kernel) -> tuple[Buffer, ...]:
    return tuple(
        replace(buffer, shape=(PARTS, scratch_elements(buffer.dtype.bits, buffer.shape))) for buffer in kernel.scratch
    )


def cases_of(name: str, dtype: DType, most: int | None = None) -> Iterator[Case]:
    """The generated cases of an op for one dtype: all, or so many spread over them."""
    record = OPS[name]
    rng = np.random.default_rng([21, crc32(f"{name} {dtype.name}".encode())])
    cases = list(record.cases(rng, dtype))
    if most is None or len(cases) <= most:
        yield from cases
        return
    picks = sorted(rng.choice(len(cases), most, replace=False).tolist())
    yield from (cases[pick] for pick in picks)


def spread(record: OpRecord, step: int) -> tuple[DType, ...]:
    """One in so many of the dtypes of an op, not the same ones for every op."""
    first = crc32(record.name.encode()) % min(step, len(record.dtypes))
    return tuple(record.dtypes[first::step])


def compiled(
    cases: Sequence[Prepared], folder: Path, options: Sequence[str] = ("-O1",), cc: str = "gcc"
) -> ctypes.CDLL:
    needs = {need for one in cases for need in one.code.needs}
    source = folder / "op.c"
    source.write_text(HEAD + support_code(needs) + "\n".join(one.code.text for one in cases), encoding="ascii")
    library = folder / f"op-{crc32(' '.join([*options, cc]).encode()):08x}.so"
    command = [cc, *FLAGS, *options, "-o", str(library), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:3000]
    return ctypes.CDLL(str(library))


def stored_bytes(array: Array, dtype: DType) -> Any:
    contiguous = np.array(array, order="C")
    return pack(contiguous, dtype).copy() if dtype.is_packed else contiguous.reshape(-1).view(np.uint8).copy()


def loaded(data: Any, kind: TensorType) -> Array:
    if kind.dtype.is_packed:
        return unpack(data, kind.dtype, 0, kind.size).reshape(kind.shape)
    return np.asarray(data.view(kind.dtype.array)).reshape(kind.shape)


def operand_bytes(one: Prepared) -> list[Any]:
    """The bytes of the operands, in the order in which the kernel takes them."""
    pairs = zip(one.case.arrays, one.case.dtypes, strict=True)
    given = [(array, kind) for array, kind in pairs if array is not None and kind is not None]
    return [
        stored_bytes(one.packings[buffer.name].packed(array) if buffer.name in one.packings else array, kind)
        for (array, kind), buffer in zip(given, one.inputs, strict=True)
    ]


GUARD = 64


def executed(one: Prepared, library: ctypes.CDLL, number: int) -> tuple[tuple[Array, ...], int]:
    """The results and the status; bytes behind every output are watched."""
    arrays = operand_bytes(one)
    outputs = [np.full(kind.nbytes + GUARD, 0xA5, np.uint8) for kind in one.call.outputs]
    for data, kind in zip(outputs, one.call.outputs, strict=True):
        if kind.dtype.is_packed and kind.nbytes:
            data[kind.nbytes - 1] = 0  # elements are put into bytes that exist; spare bits stay what they are
    scratch = [
        np.full(buffer.dtype.nbytes(int(np.prod(buffer.shape))) + GUARD, 0x5A, np.uint8) for buffer in one.scratch
    ]
    function = getattr(library, f"case{number}")
    function.restype = ctypes.c_int if one.code.can_fail else None
    status = function(*(ctypes.c_void_p(data.ctypes.data) for data in (*arrays, *outputs, *scratch)))
    for data, kind in zip(outputs, one.call.outputs, strict=True):
        assert (data[kind.nbytes :] == 0xA5).all(), f"'{one.record.name}' wrote behind its output"
    for data in scratch:
        assert (data[-GUARD:] == 0x5A).all(), f"'{one.record.name}' wrote behind its scratch memory"
    results = tuple(loaded(data[: kind.nbytes], kind) for data, kind in zip(outputs, one.call.outputs, strict=True))
    return results, int(status or 0)


def check_op(
    name: str,
    folder: Path,
    most: int | None = 4,
    options: Sequence[str] = ("-O1",),
    cc: str = "gcc",
    schedule: Schedule | None = None,
) -> int:
    """Compare generated C with the reference on the op's own cases, for all its dtypes; how many there were."""
    record = OPS[name]
    chosen = [case for dtype in record.dtypes for case in cases_of(name, dtype, most)]
    cases = [prepared(record, case, number, schedule) for number, case in enumerate(chosen)]
    library = compiled(cases, folder, options, cc)
    for number, one in enumerate(cases):
        judge(one, *executed(one, library, number))
    return len(cases)


class Answered(Protocol):
    """A case that some target has run."""

    @property
    def record(self) -> OpRecord:
        """The op."""

    @property
    def case(self) -> Case:
        """Its operands."""

    @property
    def call(self) -> Call:
        """The op on operands of these types."""


def judge(one: Answered, results: tuple[Array, ...], status: int) -> None:
    """Compare what a kernel did with the reference."""
    record = one.record
    try:
        with np.errstate(all="ignore"):
            wanted = answer(one)
    except OpError:
        assert status != 0, f"'{record.name}' should have failed: {one.case}"
        return
    assert status == 0, f"'{record.name}' failed: {one.case}"
    question = Question(record, one.case.arrays, one.case.dtypes, one.call.params, one.call.outputs)
    expected = tuple(_wide(value, kind) for value, kind in zip(wanted, one.call.outputs, strict=True))
    with np.errstate(all="ignore"):
        compare(question, results, expected)


def answer(one: Answered) -> tuple[Array, ...]:
    """What the reference says; of a sum, before it is rounded: within its bound it may round to either neighbour."""
    if one.record.tolerance.kind != "sum":
        return ReferenceKernel(one.record, one.call, one.case.dtypes)(one.case.arrays)
    operands = []
    for array, dtype in zip(one.case.arrays, one.case.dtypes, strict=True):
        enter = None if dtype is None else entering(dtype)
        operands.append(array if enter is None or array is None else enter(array))
    results = one.record.reference(one.call, *operands)
    return results if isinstance(results, tuple) else (np.asarray(results),)


def _wide(value: Array, kind: TensorType) -> Array:
    """The reference's answer for the harness, which rounds again: floats of every width are exact in f64."""
    return value.astype(np.float64) if kind.dtype.kind == "float" and value.dtype != np.longdouble else value
