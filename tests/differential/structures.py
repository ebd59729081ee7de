"""What random graphs put around their op nodes: loops, branches, consumers, tables, parts, counters, constraints."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.differential.making import STEPS, Making, Variable
from tests.differential.uses import Use, checked

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.ops import OPS, TensorType

CONSTRAINTS = ("fuse = false", "fuse = true", 'group = "g"', 'group = "h"', "no_reorder = true", 'placement = "cpu"')
BOOL = TensorType(DTYPES["bool"], ())


def plain(making: Making, uses: Sequence[Use]) -> None:
    """Op nodes one after the other, with pointwise ops behind some of them."""
    for use in uses:
        tail = f" with {{ {making.pick(CONSTRAINTS)} }}" if making.chance(0.08) else ""
        outputs = making.emit(use, tail=tail)
        for output in outputs:
            if making.chance(0.5):
                _chain(making, output)
        if making.chance(0.06):
            making.lines.append("barrier;")


def _chain(making: Making, first: Variable) -> None:
    """Up to three pointwise ops, each done to the result of the one before."""
    current: Variable | None = first
    before = "op"
    for _ in range(int(making.rng.integers(1, 4))):
        if current is None or current.key is None:
            return
        place = len(making.lines)
        current = making.pointwise(current)
        if current is not None and making.chance(0.05):
            after = making.lines[-1].split("(")[0].removeprefix("op ")
            if before != "op" and all(not line.startswith("op") for line in making.lines[place:-1]):
                making.lines.insert(place, f"dep after({before}) before({after});")
        before = making.lines[-1].split("(")[0].removeprefix("op ") if current is not None else "op"


def loop(making: Making, uses: Sequence[Use]) -> None:
    """A loop, perhaps in a loop, whose weights are tables; what it writes it may read in the next turn."""
    index, start = making.name("j"), int(making.rng.integers(0, 2))
    turns = int(making.pick((0, 1, 2, 2, 3)))
    was_seen, making.is_seen = making.is_seen, making.is_seen and turns > 0
    making.loops.append((index, start, start + turns))
    half = len(uses) // 2 if making.chance(0.3) and len(making.loops) < 2 else 0
    with making.body() as lines:
        plain(making, uses[half:])
        if half:
            loop(making, uses[:half])
        if making.chance(0.5):
            _update(making)
    making.loops.pop()
    making.is_seen = was_seen
    making.lines += [f"loop {making.name('l')} ({index} in {start}..{start + turns}) {{", *lines, "}"]


def scope(making: Making, uses: Sequence[Use]) -> None:
    """A named region."""
    with making.body() as lines:
        plain(making, uses)
    making.lines += [f'scope "s{making.count}" {{', *lines, "}"]


def branch(making: Making, uses: Sequence[Use]) -> None:
    """Two blocks of which each step takes one; or one block that is called once or twice."""
    half = (len(uses) + 1) // 2
    name = making.name("c")
    making.sections["dynamic"].append(f"{name}: bool;")
    first = making.chance(0.5)
    making.inputs[name] = [np.array((step % 2 == 0) == first) for step in range(STEPS)]
    blocks = []
    for value, own in ((True, uses[:half]), (False, uses[half:])):
        block = making.name("b")
        outer, making.condition = making.condition, (name, value)
        making.in_entry = False
        with making.body() as lines:
            plain(making, own)
            if making.chance(0.4):
                _update(making)
        making.in_entry, making.condition = True, outer
        making.blocks.append(f"block {block} {{\n    " + "\n    ".join([*lines, "return;"]) + "\n}")
        blocks.append(block)
    making.lines.append(f"branch {name} {blocks[0]} {blocks[1]};")


def subroutine(making: Making, uses: Sequence[Use]) -> None:
    """A block that is called, perhaps a second time."""
    block = making.name("b")
    making.in_entry = False
    with making.body() as lines:
        plain(making, uses)
    making.in_entry = True
    making.blocks.append(f"block {block} {{\n    " + "\n    ".join([*lines, "return;"]) + "\n}")
    making.lines += [f"branch {block};"] * int(making.rng.integers(1, 3))


def consumer(making: Making, uses: Sequence[Use]) -> None:
    """A value is handed to a block that works while entry goes on, and comes back."""
    handed = making.pointwise(_any_result(making))
    if handed is None or handed.key is None:
        plain(making, uses)
        return
    half = len(uses) // 2
    block = making.name("b")
    known, mutable = making.readable, making.mutable
    making.readable, making.mutable, making.in_entry = [handed], [], False
    with making.body() as lines:
        plain(making, uses[:half])
        _chain(making, handed)
    own, making.readable = making.readable[1:], [one for one in known if one.key != handed.key]
    making.mutable, making.in_entry = mutable, True
    making.blocks.append(
        f"block {block} {{\n    " + "\n    ".join([f"await {handed.text};", *lines, f"yield {handed.text};"]) + "\n}"
    )
    making.lines.append(f"yield {handed.text};")
    plain(making, uses[half:])
    making.lines.append(f"await {handed.text};")
    making.readable += [handed, *own]


def _any_result(making: Making) -> Variable:
    if making.readable:
        return making.pick(making.readable)  # type: ignore[no-any-return]
    kind = TensorType(DTYPES["f32"], (3, 4))
    return making.input(making.rng.normal(size=(3, 4)).astype(np.float32), kind)


def _update(making: Making) -> None:
    """A variable that stays, or is there all through a step, gets a new value that depends on its old one."""
    if making.mutable:
        own = making.pick(making.mutable)
        use = _pointwise_use(making, own.type)
        if use is not None:
            before = making.lines[:]
            made = making.emit(use, {0: own})[0]
            if made.key is not None:
                making.lines.append(f"transfer {made.text} >> {own.text};")
            assert len(making.lines) > len(before)


def _pointwise_use(making: Making, kind: TensorType) -> Use | None:
    from openinfer.ops.cases import random

    name = making.pick(("add", "sub", "max", "min") if kind.dtype.kind != "bool" else ("and", "or", "xor"))
    record = OPS[name]
    if kind.dtype not in record.dtypes:
        return None
    arrays = [random(making.rng, kind.dtype, kind.shape) for _ in range(2)]
    return checked(record, arrays, [kind, kind], {})


# --- memory that stays ------------------------------------------------------------------------------------------------


def add_mutable(making: Making, kind: TensorType) -> None:
    """A variable that nodes may write."""
    name = making.name("m")
    section = making.pick(("persistent", "persistent", "volatile"))
    making.sections[section].append(f"{name}: {making.declared(kind)}{making.initial(kind)};")
    making.results += [name] if section == "volatile" else []
    making.mutable.append(Variable(name, kind, None))


def table(making: Making) -> None:
    """A table of some result: written in every step, in a place that moves on or comes round, and read."""
    source = _stored_result(making)
    kind, name = source.type, making.name("K")
    bounded = not making.has_heap or making.chance(0.6)
    place = making.pick(("step", "step % 3", "step + 1", "2 * step"))
    fixed = " @fixed(t=9)" if bounded else ""
    making.sections["persistent"].append(f"{name}(t): {making.declared(kind)} @table{fixed}{making.initial(kind)};")
    making.lines.append(f"cache.write {source.text} >> {name}[{place}];")
    start, length = int(making.rng.integers(0, 3)), int(making.rng.integers(1, 4))
    shape = (length, *kind.shape)
    _read(making, f"{name}[{start}..{start + length}]", TensorType(kind.dtype, shape))
    if making.chance(0.3):
        making.lines.append(f"cache.reset {name}[{start}];")
    elif making.chance(0.2):
        making.lines.append(f"cache.reset {name};")


def matrix(making: Making) -> None:
    """A matrix that grows by a row in every step; all of it is read, so that its length is a size of the step."""
    source = _stored_result(making)
    kind, name, size = source.type, making.name("M"), making.name("N")
    extent = int(np.prod(kind.shape))
    flat = TensorType(kind.dtype, (1, extent))
    use = checked(OPS["reshape"], [np.zeros(kind.shape, kind.dtype.array)], [kind], {"shape": flat.shape})
    if use is None:
        return
    row = making.emit(use, {0: source})[0]
    start = making.pick((0, 1))
    bounded = not making.has_heap or making.chance(0.6)
    fixed = f" @fixed(i={STEPS + 2})" if bounded else ""
    making.sections["persistent"].append(f"{name}(i): {kind.dtype.name}[{start}, {extent}] @auto_dim(i){fixed};")
    making.lines.append(f"cache.write {row.text} >> {name}[{start} + step..{start} + step + 1];")
    making.sizes[size] = STEPS + 4
    making.step_sizes = [{**sizes, size: start + step + 1} for step, sizes in enumerate(making.step_sizes)]
    whole = TensorType(kind.dtype, (Dim(STEPS + 4, Ref(size)), extent))
    _read(making, f"{name}[]", whole)


def parts(making: Making) -> None:
    """Some rows of a tensor that stays are replaced, and others read."""
    source = _stored_result(making)
    kind, name = source.type, making.name("P")
    if not kind.shape:
        return
    rows = int(kind.shape[0]) + int(making.rng.integers(0, 4))
    making.sections["persistent"].append(f"{name}: {making.declared(TensorType(kind.dtype, (rows, *kind.shape[1:])))};")
    start = int(making.rng.integers(0, rows - kind.shape[0] + 1))
    rest = "".join(", .." for _ in kind.shape[1:])
    making.lines.append(f"transfer {source.text} >> {name}[{start}..{start + kind.shape[0]}{rest}];")
    if rows:
        row = int(making.rng.integers(0, rows))
        _read(making, f"{name}[{row}{rest}]", TensorType(kind.dtype, kind.shape[1:]))


def counter(making: Making) -> None:
    """An integer that stays and counts."""
    name, dtype = making.name("n"), making.pick(("i8", "u8", "i32", "i64", "u16", "i16"))
    making.sections["persistent"].append(f"{name}: {dtype} @init({int(making.rng.integers(0, 120))});")
    making.lines.append(f"cache.{making.pick(('increment', 'decrement'))} {int(making.rng.integers(1, 9))} {name};")
    _read(making, name, TensorType(DTYPES[dtype], ()))
    if making.chance(0.2):
        making.lines.append(f"cache.reset {name};")


def own_quantization(making: Making) -> None:
    """A quantized tensor as the real numbers it stands for."""
    stored = making.quantized(TensorType(DTYPES["f32"], making.pick(((5,), (3, 4), (2, 3, 4), (33,)))))
    values = making.tensors[stored.text].values
    use = checked(OPS["dequantize"], [np.asarray(values), None, None], [stored.type, None, None], {})
    assert use is not None
    making.emit(use, {0: stored})


def _read(making: Making, what: str, kind: TensorType) -> None:
    target = making.result(kind)
    making.lines.append(f"cache.read {what} >> {target.text};")
    making.readable.append(target)


def _stored_result(making: Making) -> Variable:
    """Something without dynamic sizes to keep."""
    fitting = [
        one
        for one in making.readable
        if not any(isinstance(extent, Dim) for extent in one.type.shape)
        and 0 < one.type.size <= 300
        and one.type.quant is None
        and len(one.type.shape) < 6
    ]
    if fitting:
        return making.pick(fitting)  # type: ignore[no-any-return]
    kind = TensorType(DTYPES["i4"], (3,))
    return making.input(np.array([1, -2, 7], kind.dtype.array), kind)


STRUCTURES: tuple[Callable[[Making, Sequence[Use]], None], ...] = (
    plain, plain, plain, loop, loop, scope, branch, branch, subroutine, consumer,
)  # fmt: skip
KEEPERS: tuple[Callable[[Making], Any], ...] = (table, matrix, parts, counter, own_quantization)
