"""Loop distribution: moves a parallel loop into its body, and expands the variables of an iteration to arrays.

Iterations are independent, so each statement may run for all of them before the next one does. Contiguous elements are
then accessed in the innermost loops, whatever loops are in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from openinfer.loops.affine import variables
from openinfer.loops.blocked import BLOCK
from openinfer.loops.dim import Dim
from openinfer.loops.ir import (
    Alloc,
    Binary,
    Buffer,
    Const,
    For,
    If,
    Let,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Space,
    Statement,
    Store,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed, with_scalars


class _CannotError(Exception):
    """The loop cannot be distributed over some statement."""


def spread(loop: For, taken: set[str]) -> tuple[Statement, ...] | None:
    """The body of a loop with the loop distributed into it, or None if it cannot be. Adds new names to ``taken``."""
    count = count_of(loop)
    own = _Spread(replace(loop, body=()), count, taken)
    try:
        return own.statements(loop.body, 1) if count else None
    except _CannotError:
        return None


def count_of(loop: For) -> int:
    """The trip count of a loop, or 0 if it is only known at run time."""
    extent = loop.extent.value if isinstance(loop.extent, Const) else 0
    return 0 if isinstance(extent, Dim) else int(extent)


@dataclass
class _Spread:
    loop: For
    count: int
    taken: set[str]
    arrays: dict[ScalarVar, Buffer] = field(default_factory=dict)
    """The arrays for variables of an iteration."""
    added: dict[ScalarVar, int] = field(default_factory=dict)
    """The trip count of the loops around the initialization of such a variable."""
    named: set[ScalarVar] = field(default_factory=set)
    """Names of values that may differ between iterations."""
    wider: dict[Buffer, Buffer] = field(default_factory=dict)
    """The buffers for memory of an iteration, with the iteration as an additional axis."""

    def statements(self, body: Sequence[Statement], around: int) -> tuple[Statement, ...]:
        """Statements inside loops of ``around`` iterations, with the loop distributed over them."""
        found: list[Statement] = []
        run: list[Statement] = []
        for at, one in enumerate(body):
            if self._is_simple(one):
                run += self._own(one, around, found)
                continue
            found += self._closed(run, body[at:])
            run = []
            found.append(self._control(one, around))
        return (*found, *self._closed(run, ()))

    def _closed(self, run: list[Statement], rest: Sequence[Statement]) -> tuple[Statement, ...]:
        """A run of simple statements as one loop; the rest must not use the names it defines."""
        if not run:
            return ()
        named = {one.var.name for one in run if isinstance(one, Let)}
        if any(named & variables(*scalars(inner)) for inner in walk(tuple(rest))):
            raise _CannotError
        return (replace(self.loop, body=tuple(run)),)

    def _is_simple(self, one: Statement) -> bool:
        match one:
            case Let() | Local() | SetLocal() | Store() | Alloc():
                return True
            case If(cond=cond, then=then, otherwise=otherwise) if self._depends(cond):
                return all(isinstance(inner, SetLocal | Store) for inner in (*then, *otherwise))
            case _:
                return False

    def _own(self, one: Statement, around: int, before: list[Statement]) -> Iterator[Statement]:
        """A simple statement of one iteration; hoists allocations and loop-invariant names to ``before``."""
        match one:
            case Alloc(buffer):
                self.wider[buffer] = replace(
                    buffer, shape=(*buffer.shape, self.count), strides=None, name=self._name(buffer.name)
                )
                before.append(Alloc(self.wider[buffer]))
            case Let(value=value) if not self._depends(value):
                before.append(one)
            case Let(var, value):
                self.named.add(var)
                yield Let(var, self._value(value))
            case Local(var, value):
                made = Buffer(self._name(var.name), var.dtype, (self.count,), Space.SCRATCH)
                self.arrays[var], self.added[var] = made, around
                before.append(Alloc(made))
                yield Store(made, (self.loop.index,), self._value(value))
            case SetLocal(var, value):
                if isinstance(value, Binary) and value.op == "add" and around > BLOCK * self.added.get(var, 1):
                    raise _CannotError  # A sum of this many terms needs partial sums.
                yield Store(self.arrays[var], (self.loop.index,), self._value(value))
            case Store(buffer=buffer, index=index, value=value) if buffer in self.wider:
                places = (*map(self._value, index), self.loop.index)
                yield Store(self.wider[buffer], places, self._value(value))
            case If(cond=cond, then=then, otherwise=otherwise):
                parts = [
                    tuple(made for inner in body for made in self._own(inner, around, before))
                    for body in (then, otherwise)
                ]
                yield If(self._value(cond), parts[0], parts[1])
            case _:
                yield with_scalars(one, self._value)

    def _control(self, one: Statement, around: int) -> Statement:
        match one:
            case For(extent=extent, kind=LoopKind.SERIAL | LoopKind.PARALLEL, bind=None) if not self._depends(extent):
                return replace(one, body=self.statements(one.body, around * (count_of(one) or BLOCK)))
            case If(cond=cond, then=then, otherwise=otherwise) if not self._depends(cond):
                return If(cond, self.statements(then, around), self.statements(otherwise, around))
            case _:
                raise _CannotError

    def _depends(self, value: Scalar) -> bool:
        """Whether a value may differ between iterations."""
        parts = list(visit(value))
        own = {self.loop.index, *self.arrays, *self.named}
        return any(isinstance(part, Load) or part in own for part in parts)

    def _value(self, value: Scalar) -> Scalar:
        def own(part: Scalar) -> Scalar | None:
            if isinstance(part, ScalarVar) and part in self.arrays:
                return Load(self.arrays[part], (self.loop.index,))
            if isinstance(part, Load) and part.buffer in self.wider:
                return Load(self.wider[part.buffer], (*part.index, self.loop.index))
            return None

        return changed(value, own)

    def _name(self, name: str) -> str:
        number = 0
        while f"{name}_all{number}" in self.taken:
            number += 1
        self.taken.add(f"{name}_all{number}")
        return f"{name}_all{number}"
