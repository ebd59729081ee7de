"""A random graph in the making: its variables, its lines, and what is known about its op nodes.

Operands are taken from what is there when types fit, made by a pointwise op, or come fresh from the caller, the model
or memory that stays. What the nodes stand in (loops, branches, tables...) is the business of ``structures``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tests.differential.uses import Use, checked, cut, text_of

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.dim import is_symbolic
from openinfer.oinf import TensorSpec
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint
from openinfer.ops import OPS, Array, TensorType
from openinfer.ops.arguments import spec_of
from openinfer.ops.cases import random, special

STEPS = 4
MODERATE = ("sdpa", "attn")
"""Scores that overflow to -inf hide their keys, and those that overflow on the way depend on the order of the sum."""
UNARY = ("neg", "abs", "square", "relu", "exp", "tanh", "sqrt", "sigmoid", "floor", "not", "sign", "gelu", "recip")
BINARY = ("add", "sub", "mul", "min", "max", "add", "mul", "and", "xor", "where", "eq", "lt", "div", "atan2")


@dataclass(frozen=True)
class Variable:
    """Something that an op can read: its text in the graph and its type.

    ``key`` says where its value can be looked up after a step, if it still is what the reader saw; None otherwise.
    """

    text: str
    type: TensorType
    key: str | None


@dataclass(frozen=True)
class Node:
    """An op node whose operands can all be seen after a step: it can be judged by itself.

    ``condition``: the name of an input and its value in steps that reach the node.
    """

    use: Use
    operands: tuple[Variable | None, ...]
    outputs: tuple[str, ...]
    condition: tuple[str, bool] | None


@dataclass
class Making:
    """The state of the making."""

    rng: np.random.Generator
    has_heap: bool = True
    sizes: dict[str, int] = field(default_factory=dict)
    step_sizes: list[dict[str, int]] = field(default_factory=list)
    sections: dict[str, list[str]] = field(
        default_factory=lambda: {"dynamic": [], "volatile": [], "constant": [], "persistent": []}
    )
    tensors: dict[str, TensorSpec] = field(default_factory=dict)
    inputs: dict[str, list[Array]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    readable: list[Variable] = field(default_factory=list)
    mutable: list[Variable] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)
    loops: list[tuple[str, int, int]] = field(default_factory=list)
    condition: tuple[str, bool] | None = None
    is_seen: bool = True
    """Whether nodes that are made now run in every step, or at least whenever their condition says."""
    in_entry: bool = True
    count: int = 0

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, values: Sequence[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"

    @contextmanager
    def body(self) -> Iterator[list[str]]:
        """Lines that are collected instead of added."""
        outer, self.lines = self.lines, []
        try:
            yield self.lines
        finally:
            self.lines = outer

    # --- variables ------------------------------------------------------------------------------------------------

    def declared(self, kind: TensorType) -> str:
        return f"{kind.dtype.name}[{', '.join(map(repr, kind.shape))}]" if kind.shape else kind.dtype.name

    def result(self, kind: TensorType) -> Variable:
        """A new variable for a result."""
        name = self.name("t")
        if self.in_entry and self.chance(0.85):
            self.lines.append(f"assign {name}: {self.declared(kind)};")
        else:
            self.sections["volatile"].append(f"{name}: {self.declared(kind)};")
        self.results.append(name)
        return Variable(name, kind, name)

    def fresh(self, array: Array, kind: TensorType, *, as_is: bool = False) -> Variable:
        """A variable whose values come from outside; ``as_is``: every step and layer gets the same ones."""
        if any(is_symbolic(extent) for extent in kind.shape):
            return self.input(array, kind, as_is=as_is)
        roll = self.rng.random()
        if self.loops and roll < 0.4:
            return self.entry_of_table(array, kind, as_is=as_is)
        if roll < 0.5:
            return self.input(array, kind, as_is=as_is)
        if roll < 0.6 and kind.shape and kind.shape[0]:
            return self.part(array, kind)
        name = self.name("w")
        section = self.pick(("constant", "constant", "volatile", "persistent"))
        self.sections[section].append(f"{name}: {self.declared(kind)};")
        self.tensors[name] = TensorSpec(np.array(array), kind.dtype)
        return Variable(name, kind, name)

    def input(self, array: Array, kind: TensorType, *, as_is: bool = False) -> Variable:
        name = self.name("x")
        self.sections["dynamic"].append(f"{name}: {self.declared(kind)};")
        self.inputs[name] = [
            cut(array if as_is or step == 0 else self.shuffled(array), kind, self.step_sizes[step])
            for step in range(STEPS)
        ]
        return Variable(name, kind, name)

    def entry_of_table(self, array: Array, kind: TensorType, *, as_is: bool) -> Variable:
        """A tensor of its own for every turn of the loops around."""
        name = self.name("W")
        loops = self.loops[-2:] if self.chance(0.5) else self.loops[-1:]
        indices = ["layer", "head"][: len(loops)]
        pattern = ".".join([name, *(f"{{{index}}}" for index in indices)])
        self.sections["constant"].append(f'{name}({", ".join(indices)}): {self.declared(kind)} @pattern("{pattern}");')
        key = name
        for where in np.ndindex(*(max(1, end - start) for _, start, end in loops)):
            places = [start + place for place, (_, start, _) in zip(where, loops, strict=True)]
            key = ".".join([name, *map(str, places)])
            self.tensors[key] = TensorSpec(np.array(array if as_is else self.shuffled(array)), kind.dtype)
        return Variable(f"{name}[{', '.join(index for index, _, _ in loops)}]", kind, key)

    def part(self, array: Array, kind: TensorType) -> Variable:
        """Some rows of a larger tensor."""
        name = self.name("p")
        above, below = int(self.rng.integers(0, 3)), int(self.rng.integers(0, 3))
        rows = np.concatenate([array[:1].repeat(above, axis=0), array, array[:1].repeat(below, axis=0)])
        whole = TensorType(kind.dtype, rows.shape)
        self.sections["persistent"].append(f"{name}: {self.declared(whole)};")
        self.tensors[name] = TensorSpec(rows, kind.dtype)
        rest = "" if len(kind.shape) == 1 else ", " + ", ".join(".." for _ in kind.shape[1:])
        return Variable(f"{name}[{above}..{above + kind.shape[0]}{rest}]", kind, None)

    def shuffled(self, array: Array) -> Array:
        return np.asarray(self.rng.permutation(array.reshape(-1))).reshape(array.shape)

    def quantized(self, kind: TensorType) -> Variable:
        """A weight that is stored as integers and stands for real numbers."""
        name = self.name("q")
        dtype = DTYPES[self.pick(("i8", "u8", "i4", "i8", "u4", "i16"))]
        axis = int(self.rng.integers(len(kind.shape))) if kind.shape and self.chance(0.6) else None
        count = 1 if axis is None else kind.shape[axis]
        scale = QuantScale(axis, self.rng.uniform(0.01, 0.2, count).astype(np.float32))
        point = QuantZeroPoint(axis, self.rng.integers(-3, 4, count).astype(np.int32)) if self.chance(0.5) else None
        quant = QuantParams("symmetric" if point is None else "asymmetric", scale, point)
        self.sections["constant"].append(f"{name}: {dtype.name}[{', '.join(map(str, kind.shape))}];")
        self.tensors[name] = TensorSpec(random(self.rng, dtype, kind.shape, -99, 99), dtype, quant=quant)
        return Variable(name, TensorType(dtype, kind.shape, quant), name)

    def initial(self, kind: TensorType) -> str:
        """An initial value, for some variables."""
        one = {"bool": "true", "i1": "-1"}.get(kind.dtype.name, "1")
        return f" @init({one})" if self.chance(0.4) else ""

    # --- op nodes -------------------------------------------------------------------------------------------------

    def emit(self, use: Use, given: Mapping[int, Variable] | None = None, tail: str = "") -> list[Variable]:
        """An op node; ``given`` are operands that are settled."""
        operands = [self._operand(use, slot, given or {}) for slot in range(len(use.types))]
        arguments, is_named = [], False
        for slot, operand in enumerate(operands):
            if operand is None:
                is_named = True
                continue
            name = spec_of(use.record, slot).name
            arguments.append(f"{name}={operand.text}" if is_named else operand.text)
            self.read.add(operand.text)
        arguments += [f"{name}={text_of(value)}" for name, value in use.params.items() if value is not None]
        outputs: list[Variable] = []
        for kind in use.outputs:
            outputs.append(self._target(kind, {one.text for one in outputs}))
        names = ", ".join(output.text for output in outputs)
        self.lines.append(f"op {use.record.name}({', '.join(arguments)}) >> {names}{tail};")
        keys = [output.key for output in outputs]
        is_open = all(operand is None or operand.key is not None for operand in operands)
        if is_open and self.is_seen and None not in keys:
            self.nodes.append(Node(use, tuple(operands), tuple(map(str, keys)), self.condition))
        self.readable += [output for output in outputs if output.key is not None]
        return outputs

    def _target(self, kind: TensorType, taken: set[str]) -> Variable:
        fitting = [one for one in self.mutable if _fits(one, kind) and one.text not in taken]
        if fitting and self.chance(0.3):
            return self.pick(fitting)  # type: ignore[no-any-return]
        return self.result(kind)

    def _operand(self, use: Use, slot: int, given: Mapping[int, Variable]) -> Variable | None:
        array, kind = use.arrays[slot], use.types[slot]
        if array is None or kind is None:
            return None
        if slot in given:
            return given[slot]
        if use.can_fail or use.record.name in MODERATE:
            return self.fresh(array, kind, as_is=not self.chance(0.02))
        if self._may_be_quantized(use, slot) and self.chance(0.4):
            return self.quantized(kind)
        fitting = [one for one in (*self.readable, *self.mutable) if _fits(one, kind)]
        if fitting and self.chance(0.6):
            unread = [one for one in fitting if one.text not in self.read]
            return self.pick(unread if unread and self.chance(0.65) else fitting)  # type: ignore[no-any-return]
        if self.chance(0.3) and kind.dtype.kind != "bool":
            made = self.pointwise(self.fresh(array, kind), kind.dtype)
            if made is not None and _fits(made, kind):
                return made
        return self.fresh(array, kind)

    def _may_be_quantized(self, use: Use, slot: int) -> bool:
        kind = use.types[slot]
        assert kind is not None
        alone = {"gather": 0, "embedding": 0}.get(use.record.name, 1)
        is_plain = kind.dtype.name == "f32" and not any(map(is_symbolic, kind.shape)) and kind.size > 0
        return spec_of(use.record, slot).dequantizes and slot == alone and is_plain

    def pointwise(self, first: Variable, to: DType | None = None) -> Variable | None:
        """An op done to each element of something, with other operands of the same or a smaller shape."""
        kind = first.type
        for _ in range(6):
            name = self.pick(UNARY if self.chance(0.4) else BINARY)
            record = OPS[name]
            if kind.dtype not in record.signature.allowed(record.signature.inputs[-1].type):
                continue
            types = [kind] * len(record.signature.inputs)
            if len(types) > 1:
                types[-1] = self._smaller(kind)
            if name == "where":
                types[0] = TensorType(DTYPES["bool"], kind.shape)
            values = special if self.chance(0.3) else random
            arrays = [values(self.rng, one.dtype, tuple(map(int, one.shape))) for one in types]
            use = checked(record, arrays, types, {})
            if use is None or use.can_fail or (to is not None and use.outputs[0].dtype is not to):
                continue
            return self.emit(use, {1 if name == "where" else 0: first})[0]
        return None

    def _smaller(self, kind: TensorType) -> TensorType:
        """A type that broadcasts to another one."""
        roll = self.rng.random()
        if roll < 0.6 or not kind.shape:
            return kind
        if roll < 0.8:
            return replace(kind, shape=kind.shape[-1:])
        return replace(kind, shape=tuple(1 if self.chance(0.5) else extent for extent in kind.shape))


def _fits(one: Variable, kind: TensorType) -> bool:
    same = one.type.dtype is kind.dtype and one.type.quant is None
    return same and tuple(map(repr, one.type.shape)) == tuple(map(repr, kind.shape))
