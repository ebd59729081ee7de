"""Random programs: declarations, and statements that read and write them in every way that control flow allows."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from tests.differential.programs.numbers import FLOATS, INTEGERS, held_as, limits
from tests.differential.programs.tree import (
    Access,
    Assign,
    Decl,
    Dim,
    Kind,
    Op,
    Operand,
    Program,
    Statement,
    Step,
    dim,
)

T = TypeVar("T")
COMMON = ("i32", "i32", "i32", "i64", "i16", "i8", "u8", "f32", "f32")
PACKED = ("i4", "u4", "i2", "u2", "u1", "i1", "t2", "t1", "bool")
OTHERS = ("u16", "u32", "f64", "f16")
MOST_TEMPORARIES = 14
DECLARED = ("volatile", "persistent", "constant", "dynamic")


@dataclass
class Env:
    """What statements at some place may touch."""

    readable: dict[str, Kind]
    writable: set[str]
    tables: set[str]
    """Cache tables and prefix tables that may be read; those in ``writable`` may be written too."""
    indices: list[tuple[str, int | None]] = field(default_factory=list)
    """Loop indices, each with what it stays below, where that is known."""
    is_entry: bool = True
    depth: int = 0
    can_call: bool = True

    def inner(self, **changes: Any) -> "Env":
        """A copy to go on with."""
        found = replace(self, **changes)
        found.readable, found.writable, found.tables = dict(found.readable), set(found.writable), set(found.tables)
        found.indices = list(found.indices)
        return found


class Making:
    """A program in the making."""

    def __init__(self, seed: int, attempt: int, *, has_heap: bool, has_floats: bool = True) -> None:
        self.seed = seed
        self.has_heap = has_heap
        self.common, self.others = (
            tuple(one for one in dtypes if has_floats or one not in FLOATS) for dtypes in (COMMON, OTHERS)
        )
        self.rng = random.Random(f"{seed}/{attempt}")
        self.sizes: dict[str, int] = {}
        self.free_sizes: list[str] = []
        """Dynamic sizes that no input has: slices bind them."""
        self.decls: dict[str, Decl] = {}
        self.blocks: dict[str, tuple[Statement, ...]] = {}
        self.effects: dict[str, tuple[set[str], set[str]]] = {}
        self.tensors: dict[str, tuple[str, Any]] = {}
        self.kinds: list[Kind] = []
        self.temporaries: dict[str, Kind] = {}
        self.count = 0
        self.yielded: set[str] = set()

    # --- chance -------------------------------------------------------------------------------------------------------

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def pick(self, values: Sequence[T]) -> T:
        return values[self.rng.randrange(len(values))]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    # --- values -------------------------------------------------------------------------------------------------------

    def values(self, dtype: str, shape: Sequence[int]) -> Any:
        """Elements of a dtype: mostly small, sometimes at the edge of the range."""
        count = int(np.prod(shape, dtype=int))
        if dtype == "bool":
            found: list[float] = [self.chance(0.5) for _ in range(count)]
        elif dtype in FLOATS:
            found = [float(self.number(-9, 9)) for _ in range(count)]
        elif dtype == "t1":
            found = [self.pick((-1, 1)) for _ in range(count)]
        else:
            low, high = limits(dtype)
            near = (max(low, -9), min(high, 9))
            found = [self.pick((low, high)) if self.chance(0.06) else self.number(*near) for _ in range(count)]
        return np.array(found, dtype=held_as(dtype)).reshape(shape)

    def init(self, dtype: str) -> int | float | None:
        if self.chance(0.5) or dtype == "bool":
            return None
        if dtype in FLOATS:
            return float(self.number(-4, 4))
        return int(self.values(dtype, ()))

    # --- declarations -------------------------------------------------------------------------------------------------

    def declare(self, decl: Decl) -> Decl:
        self.decls[decl.name] = decl
        return decl

    def setup(self) -> None:
        """Sizes, the kinds that this program is about, and variables of all memory kinds."""
        for name in "TU"[: self.pick((0, 1, 1, 1, 2))]:
            self.sizes[name] = self.number(1, 5)
        for name in "SR"[: self.pick((0, 1, 1, 2))]:
            self.sizes[name] = self.number(3, 6)
            self.free_sizes.append(name)
        self._choose_kinds()
        self._scalars()
        for kind in self.kinds:
            self._variables(kind)
        if self.free_sizes and self.chance(0.5):
            # Nothing gives it a shape before a slice does.
            kind = Kind(self.kinds[0].dtype, (dim(self.free_sizes[0]), *self.kinds[0].dims))
            self.declare(Decl(self.name("y"), "volatile", kind, self.init(kind.dtype)))
        for _ in range(self.pick((1, 2, 2, 3))):
            self._table()
        if self.chance(0.35):
            self._prefix_table()

    def _choose_kinds(self) -> None:
        extent = self.number(2, 4)
        bound = [name for name in self.sizes if name not in self.free_sizes]
        shapes: list[tuple[Dim, ...]] = [(dim(extent),)]
        shapes += [(dim(name), dim(extent)) if self.chance(0.6) else (dim(name),) for name in bound]
        if self.chance(0.4):
            shapes.append((dim(self.number(1, 3)), dim(extent)))
        main = self.pick(self.common)
        self.kinds = [Kind(main, shape) for shape in shapes]
        for _ in range(self.number(0, 2)):
            self.kinds.append(Kind(self.pick((*self.common, *PACKED, *PACKED, *self.others)), self.pick(shapes)))
        self.kinds = list(dict.fromkeys(self.kinds))

    def _scalars(self) -> None:
        """Counters, numbers for bounds and indices, and conditions."""
        for _ in range(self.number(1, 2)):
            dtype = self.pick(("i32", "i32", "i64", "u8", "i16", "i8", "i4", "u2"))
            init = self.pick((None, None, 0, 1))
            self.declare(Decl(self.name("n"), "persistent", Kind(dtype), init=init))
        for _ in range(self.number(1, 2)):
            self.declare(Decl(self.name("m"), "dynamic", Kind(self.pick(("i32", "i64", "u8", "i8")))))
        if self.chance(0.5):
            self.declare(
                Decl(self.name("v"), "volatile", Kind(self.pick(("i32", "i64"))), init=self.pick((None, 1, 2)))
            )
        if self.chance(0.7):
            self.declare(Decl(self.name("c"), "dynamic", Kind("bool")))
        if self.chance(0.5):
            self.declare(Decl(self.name("c"), self.pick(("volatile", "persistent")), Kind("bool")))

    def _variables(self, kind: Kind) -> None:
        sections = [section for section in DECLARED if self.chance(0.5)] or ["dynamic"]
        has_size = not kind.is_static
        if has_size and not any(
            decl.section == "dynamic" and set(_sizes(kind)) & set(_sizes(decl.kind)) for decl in self.decls.values()
        ):
            sections = ["dynamic", *(one for one in sections if one != "dynamic")]
        for section in sections:
            if has_size and section in {"persistent", "constant"}:
                continue
            name = self.name({"volatile": "y", "persistent": "p", "constant": "k", "dynamic": "x"}[section])
            init, tensor = None, None
            if section != "dynamic":
                init = self.init(kind.dtype)
                from_model = not has_size and (self.chance(0.3) or (section == "constant" and init is None))
                if from_model:
                    init, tensor = None, name if self.chance(0.7) else f"{name}.of.model"
                    shape = [number for number, _ in kind.dims]
                    self.tensors[tensor] = (kind.dtype, self.values(kind.dtype, shape))
            self.declare(Decl(name, section, kind, init, tensor))

    def _table(self) -> None:
        static = [kind for kind in self.kinds if kind.is_static]
        kind = self.pick([*static, *static, Kind(static[0].dtype)])
        name, init = self.name("A"), self.init(kind.dtype)
        choice = self.number(0, 9 if self.has_heap else 5)
        if choice <= 3:
            bound = self.number(2, 5)
            self.declare(Decl(name, "persistent", kind, init, None, ("i",), (("i", bound),), is_table=True))
        elif choice == 4:
            fixed = (("i", self.number(2, 3)), ("j", self.number(2, 4)))
            self.declare(Decl(name, "persistent", kind, init, None, ("i", "j"), fixed, is_table=True))
        elif choice in {6, 7}:
            indices = self.pick((("i",), ("i", "j")))
            self.declare(Decl(name, "persistent", kind, init, None, indices, is_table=True))
        else:
            self._matrix(name, static, init)

    def _matrix(self, name: str, static: Sequence[Kind], _init: Any) -> None:
        kind = self.pick([kind for kind in static if kind.dims])
        grown = tuple("rq"[: len(kind.dims)]) if self.chance(0.5) else ("r",)
        fixed = tuple((one, self.number(1, 3)) for one in grown) if self.chance(0.6) or not self.has_heap else ()
        indices, is_table = grown, False
        if self.chance(0.3):
            indices, is_table = ("l", *grown), True
            if fixed:
                fixed = (("l", self.number(2, 3)), *fixed)
        init = self.init(kind.dtype)
        self.declare(Decl(name, "persistent", kind, init, None, indices, fixed, grown, is_table))

    def _prefix_table(self) -> None:
        kind = self.pick([kind for kind in self.kinds if kind.is_static])
        name, entries = self.name("W"), self.number(2, 3)
        self.declare(Decl(name, self.pick(("constant", "volatile")), kind, None, None, ("l",), entries=entries))
        for entry in range(entries):
            shape = [number for number, _ in kind.dims]
            self.tensors[f"{name}.{entry}"] = (kind.dtype, self.values(kind.dtype, shape))

    def outer(self) -> Env:
        """What entry may touch at first."""
        plain = {decl.name: decl.kind for decl in self.decls.values() if decl.is_plain}
        writable = {decl.name for decl in self.decls.values() if decl.section != "constant"}
        tables = {decl.name for decl in self.decls.values() if not decl.is_plain}
        return Env(plain, writable, tables)

    # --- what there is ------------------------------------------------------------------------------------------------

    def variables(self, env: Env, fits: Callable[[Kind], bool], *, written: bool = False) -> list[str]:
        """Names of plain variables whose kind fits."""
        return [name for name, kind in env.readable.items() if fits(kind) and (not written or name in env.writable)]

    def integers(self, env: Env) -> list[str]:
        """Scalars that can stand in indices."""
        return self.variables(env, lambda kind: not kind.dims and kind.dtype in INTEGERS)

    def target(
        self, env: Env, kind: Kind, operands: Sequence[str], *, infers: bool
    ) -> tuple[str, list[Statement], bool]:
        """Where a result goes: a variable (often an operand) or a new one, which may be declared by the op.

        No name means that there is nothing it could go to.
        """
        known = self.variables(env, lambda one: one == kind, written=True)
        own = [name for name in operands if name in known]
        if own and self.chance(0.4):
            return self.pick(own), [], False
        if known and (not env.is_entry or self.chance(0.65)):
            return self.pick(known), [], False
        if not env.is_entry or len(self.temporaries) > MOST_TEMPORARIES:
            return "", [], False
        name = self.temporary(env, kind)
        if infers and self.chance(0.55):
            return name, [], True
        return name, [Assign(name, kind)], False

    def temporary(self, env: Env, kind: Kind) -> str:
        """A new temporary, which somebody must declare."""
        name = self.name("t_" if kind.dims else "s_")
        self.temporaries[name] = kind
        env.readable[name] = kind
        env.writable.add(name)
        return name

    def emit(
        self,
        env: Env,
        body: list[Statement],
        op: str,
        inputs: Sequence[Operand],
        kind: Kind,
        *,
        infers: bool = True,
        **params: Any,
    ) -> None:
        """An op on operands, into something of the kind it gives."""
        operands = [one.base for one in inputs if isinstance(one, Access)]
        name, made, is_new = self.target(env, kind, operands, infers=infers)
        if name:
            output = (Access(name),)
            body += [*made, Op(op, tuple(inputs), output, tuple(params.items()), (kind,) if is_new else ())]

    def finished(self, body: Sequence[Statement], outputs: Sequence[str], steps: Sequence[Step]) -> Program:
        return Program(
            self.seed,
            self.sizes,
            tuple(self.decls.values()),
            {"entry": tuple(body), **self.blocks},
            tuple(outputs),
            self.tensors,
            tuple(steps),
        )


def _sizes(kind: Kind) -> Iterator[str]:
    for _, counts in kind.dims:
        for name, _ in counts:
            yield name


def anything(_kind: Kind) -> bool:
    """Every kind fits."""
    return True
