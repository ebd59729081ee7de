"""Random graphs whose every op is exact, so that generated code must agree with the simulator bit for bit.

All of control flow occurs: loops, branches, tables, counters, yield and await, dynamic sizes, fences.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from openinfer import ModelLoader
from openinfer.dtypes import DTYPES
from openinfer.oinf import TensorSpec, save_file
from openinfer.ops.cases import special

DTYPE_NAMES = ("f32", "f16", "bf16", "f64", "i32", "i8", "u8", "i4", "u2", "i64", "bool")
SHAPES = ((), (1,), (5,), (17,), (3, 4), (4, 3), (2, 3, 4), (1, 4), (0, 4), (33,), (3, 1))
NUMBERS = ("add", "sub", "mul", "min", "max")
STEPS = 3


@dataclass
class Random:
    """A graph in the making: its variables by type, and its lines."""

    rng: np.random.Generator
    variables: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    inputs: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    weights: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    persistent: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    count: int = 0

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def pick(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def readable(self, dtype: str | None = None, shape: tuple[int, ...] | None = None) -> list[str]:
        everything = {**self.variables, **self.inputs, **self.weights, **self.persistent}
        return [
            name
            for name, kind in everything.items()
            if (dtype is None or kind[0] == dtype) and (shape is None or kind[1] == shape)
        ]

    def kind(self, name: str) -> tuple[str, tuple[int, ...]]:
        return {**self.variables, **self.inputs, **self.weights, **self.persistent}[name]

    def target(self, dtype: str, shape: tuple[int, ...], lines: list[str], *, fresh: bool) -> str:
        """A variable to write: one that exists, or a new temporary."""
        known = [name for name in (*self.variables, *self.persistent) if self.kind(name) == (dtype, shape)]
        if known and (not fresh or self.rng.random() < 0.5):
            return str(self.pick(known))
        if not fresh:
            return ""
        name = self.name("t")
        lines.append(f"assign {name}: {dtype}{list(shape)};")
        self.variables[name] = (dtype, shape)
        return name

    # --- nodes ----------------------------------------------------------------------------------------------------

    def node(self, *, fresh: bool) -> list[str]:
        """One op on what there is; without fresh variables, only into ones that exist."""
        lines: list[str] = []
        source = self.pick(self.readable())
        dtype, shape = self.kind(source)
        made = self._op(source, dtype, shape)
        if made is None:
            return []
        text, out_dtype, out_shape = made
        target = self.target(out_dtype, out_shape, lines, fresh=fresh)
        return [*lines, f"op {text} >> {target};"] if target else []

    def _op(self, source: str, dtype: str, shape: tuple[int, ...]) -> tuple[str, str, tuple[int, ...]] | None:
        kind = DTYPES[dtype].kind
        choice = int(self.rng.integers(9))
        if choice <= 2:
            other = self.pick(self.readable(dtype, shape))
            if kind == "bool":
                return f"{self.pick(('and', 'or', 'xor'))}({source}, {other})", dtype, shape
            return f"{self.pick(NUMBERS)}({source}, {other})", dtype, shape
        if choice == 3:
            other = self.pick(self.readable(dtype, shape))
            return (
                f"{self.pick(('eq', 'ne') if kind == 'bool' else ('eq', 'lt', 'ge'))}({source}, {other})",
                "bool",
                shape,
            )
        if choice == 4:
            return self._moved(source, dtype, shape)
        if choice == 5:
            to = self.pick(DTYPE_NAMES)
            return f"cast({source}, to={to})", to, shape
        if choice == 6 and kind != "bool":
            return f"{self.pick(('abs', 'neg', 'square'))}({source})", dtype, shape
        if choice == 7:
            conditions = self.readable("bool", shape)
            other = self.pick(self.readable(dtype, shape))
            return (f"where({self.pick(conditions)}, {source}, {other})", dtype, shape) if conditions else None
        if kind in ("int", "uint") and shape:
            return f"sum_axis({source}, axis=-1)", dtype, shape[:-1]
        return None

    def _moved(self, source: str, dtype: str, shape: tuple[int, ...]) -> tuple[str, str, tuple[int, ...]] | None:
        choice = int(self.rng.integers(4))
        if choice == 0:
            return f"transpose({source})", dtype, shape[::-1]
        if choice == 1 and shape:
            return f"flip({source}, axes=[0])", dtype, shape
        if choice == 2 and len(shape) >= 1:
            return f"concat({source}, {source}, axis=0)", dtype, (2 * shape[0], *shape[1:])
        if shape and shape[0] > 1:
            return f"slice({source}, starts=[1], ends=[{shape[0]}])", dtype, (shape[0] - 1, *shape[1:])
        return None

    def nodes(self, count: int, *, fresh: bool) -> list[str]:
        return [line for _ in range(count) for line in self.node(fresh=fresh)]


@dataclass(frozen=True)
class Case:
    """A graph, the model it needs, and inputs for each step."""

    text: str
    tensors: dict[str, Any]
    dtypes: dict[str, str]
    inputs: list[dict[str, Any]]
    outputs: tuple[str, ...]


def model_of(case: Case, folder: Path) -> ModelLoader:
    """The model of a graph, in a file."""
    path = folder / "model.oinf"
    save_file(path, {name: TensorSpec(value, case.dtypes[name]) for name, value in case.tensors.items()})
    return ModelLoader.open(path)


def _typed(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    return special(rng, DTYPES[dtype], shape)


def random_case(seed: int) -> Case:
    """The graph of a seed."""
    made = Random(np.random.default_rng([77, seed]))
    rng = made.rng
    for _ in range(int(rng.integers(1, 4))):
        made.inputs[made.name("x")] = (made.pick(DTYPE_NAMES), made.pick(SHAPES))
    for _ in range(int(rng.integers(1, 4))):
        made.weights[made.name("w")] = (made.pick(DTYPE_NAMES), made.pick(SHAPES))
    for _ in range(int(rng.integers(1, 3))):
        made.persistent[made.name("p")] = (made.pick(DTYPE_NAMES), made.pick(SHAPES))
    lines = made.nodes(int(rng.integers(3, 12)), fresh=True)
    blocks: list[str] = []
    for _ in range(int(rng.integers(1, 4))):
        lines += _structure(made, blocks)
        lines += made.nodes(int(rng.integers(1, 5)), fresh=True)
    tables = _table_lines(made, lines)
    outputs = [name for name in made.variables if rng.random() < 0.3] or list(made.variables)[-1:]
    sections = [_section("dynamic", made.inputs), _section("constant", made.weights)]
    sections.append(f"persistent {{ step: i32; {_declared(made.persistent)} {tables} }}")
    body = "\n    ".join([*lines, "cache.increment step;", f"return {', '.join(outputs)};" if outputs else "return;"])
    text = "\n".join([*sections, f"block entry {{\n    {body}\n}}", *blocks]) + "\n"
    tensors = {name: _typed(rng, *kind) for name, kind in made.weights.items()}
    inputs = [{name: _typed(rng, *kind) for name, kind in made.inputs.items()} for _ in range(STEPS)]
    return Case(text, tensors, {name: kind[0] for name, kind in made.weights.items()}, inputs, tuple(outputs))


def _structure(made: Random, blocks: list[str]) -> list[str]:
    """A loop, a branch, a barrier or a scope around nodes that write what exists."""
    inner = made.nodes(int(made.rng.integers(1, 5)), fresh=False)
    choice = int(made.rng.integers(4))
    if choice == 0:
        index = made.name("j")
        return [f"loop {made.name('l')} ({index} in 0..{int(made.rng.integers(0, 4))}) {{", *inner, "}"]
    if choice == 1:
        conditions = made.readable("bool", ())
        names = [made.name("b") for _ in range(2)]
        for name in names:
            body = " ".join(made.nodes(int(made.rng.integers(0, 3)), fresh=False))
            blocks.append(f"block {name} {{ {body} return; }}")
        return (
            [f"branch {made.pick(conditions)} {names[0]} {names[1]};"]
            if conditions
            else [f"branch {names[0]};", f"branch {names[1]};"]
        )
    if choice == 2:
        return ["barrier;", *inner]
    return [f'scope "s{made.count}" {{', *inner, "}"]


def _table_lines(made: Random, lines: list[str]) -> str:
    """A table that is written with something and read back."""
    source = made.pick(made.readable())
    dtype, shape = made.kind(source)
    whole = made.name("t")
    lines.append(f"cache.write {source} >> K[step];")
    lines.append(f"assign {whole}: {dtype}{[3, *shape]};")
    lines.append(f"cache.read K[0..3] >> {whole};")
    made.variables[whole] = (dtype, (3, *shape))
    return f"K(t): {dtype}{list(shape)} @table @fixed(t=8);"


def _declared(kinds: dict[str, tuple[str, tuple[int, ...]]]) -> str:
    return " ".join(f"{name}: {dtype}{list(shape)};" for name, (dtype, shape) in kinds.items())


def _section(name: str, kinds: dict[str, tuple[str, tuple[int, ...]]]) -> str:
    return f"{name} {{ {_declared(kinds)} }}"
