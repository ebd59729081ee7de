"""The kernel verifier: types agree, names are defined, memory is declared.

Problems are sentences for authors of lowerings and passes. Every target can print a kernel without problems, and the
interpreter can run it.
"""

import re
from collections import Counter
from collections.abc import Iterator

from openinfer.dtypes import DType
from openinfer.loops.dim import Dim, is_same_shape, is_symbolic
from openinfer.loops.early import early_problems
from openinfer.loops.ir import (
    ACCUMULATOR,
    BOOL,
    INDEX,
    Alloc,
    Binary,
    Bind,
    Bits,
    Buffer,
    Cast,
    Combine,
    Compare,
    Const,
    Contraction,
    Exchange,
    Fail,
    For,
    If,
    Kernel,
    Leave,
    Let,
    Load,
    Local,
    LoopKind,
    Math,
    Round,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Space,
    Statement,
    Store,
    Structure,
    TileStep,
    Unary,
    While,
    WideLoad,
    WideStore,
    children,
    visit,
)
from openinfer.loops.teams import team_problems
from openinfer.loops.text import scalar_text

MATH = {
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"), 1),
    **dict.fromkeys(
        ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"), 1
    ),
    **dict.fromkeys(("erf", "erfc", "gelu", "mish", "softplus"), 1),
    **dict.fromkeys(("pow", "atan2", "fmod"), 2),
    "fma": 3,
}
"""The named functions and their argument counts."""

_FLOAT, _WHOLE = ("float",), ("int", "uint")
_KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("neg", "abs", "add", "sub", "mul", "div", "rem", "min", "max"), ("float", "int", "uint")),
    **dict.fromkeys(("sqrt", "floor", "ceil", "rint", "trunc", "isnan", "isinf", "signbit", "steps"), _FLOAT),
    **dict.fromkeys(("copysign", "nextafter"), _FLOAT),
    **dict.fromkeys(("popcount", "shl", "shr"), _WHOLE),
    **dict.fromkeys(("not", "and", "or", "xor"), ("int", "uint", "bool")),
}
"""The kinds of types that each operation accepts."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def verify(kernel: Kernel) -> list[str]:
    """The problems of a kernel, in words; empty if it is valid.

    >>> verify(Kernel("k", (), (), (Let(ScalarVar("v"), ScalarVar("w")),)))
    ["'w' is used where it is not defined: w"]
    """
    return list(_Verifier(kernel).problems())


class _Verifier:
    """One walk over a kernel, tracking what is in scope."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._writable = {one.name for one in (*kernel.outputs, *kernel.scratch)}
        buffers = (*kernel.inputs, *kernel.outputs, *kernel.scratch)
        self._buffers = {one.name: one for one in buffers}
        self._counts = Counter(one.name for one in buffers)

    def problems(self) -> Iterator[str]:
        for name, count in self._counts.items():
            if count > 1:
                yield f"{count} buffers are called '{name}'"
        for buffer in self._buffers.values():
            yield from self._declared(buffer)
        given = (*self._kernel.inputs, *self._kernel.outputs)
        yield from self._body(self._kernel.body, _NameScope({one.name for one in given}))
        yield from early_problems(self._kernel)
        yield from team_problems(self._kernel)

    def _declared(self, buffer: Buffer) -> Iterator[str]:
        if not _NAME.fullmatch(buffer.name):
            yield f"a buffer is called {buffer.name!r}, which is not an identifier"
        if buffer.dtype is INDEX:
            yield f"buffer '{buffer.name}' holds positions, which have no width in memory: cast them"
        if any(extent < 0 for extent in buffer.shape):
            yield f"buffer '{buffer.name}' has a negative extent in {list(buffer.shape)}"
        if buffer.strides is not None and len(buffer.strides) != len(buffer.shape):
            yield f"buffer '{buffer.name}' has {len(buffer.shape)} extents and {len(buffer.strides)} strides"

    # --- statements -----------------------------------------------------------------------------------------------

    def _body(self, statements: tuple[Statement, ...], outside: "_NameScope") -> Iterator[str]:
        scope = outside.inside()
        for statement in statements:
            match statement:
                case For():
                    yield from self._loop(statement, scope)
                case While(cond, body):
                    yield from self._expects(cond, BOOL, "a condition", scope)
                    yield from self._body(body, scope)
                case If(cond, then, otherwise):
                    yield from self._expects(cond, BOOL, "a condition", scope)
                    yield from self._body(then, scope)
                    yield from self._body(otherwise, scope)
                case Let(var, value) | Local(var, value):
                    yield from self._expects(value, var.dtype, f"the value of '{var.name}'", scope)
                    yield from self._bind(var, scope, is_local=isinstance(statement, Local))
                case SetLocal():
                    yield from self._assigned(statement, scope)
                case Store():
                    yield from self._stored(statement, scope)
                case Alloc(buffer):
                    scope.memory.add(buffer.name)
                case Fail(reason):
                    if not reason or not reason.isprintable() or "*/" in reason:
                        yield f"the reason of a failure is {reason!r}, which cannot be shown"
                case Contraction():
                    yield from self._contraction(statement, scope)
                case Structure():
                    yield from self._structure(statement, scope)
                case Combine():
                    yield from self._combined(statement, scope)
                case Exchange():
                    yield from self._exchanged(statement, scope)
                case Leave(row=row):
                    yield from self._expects(row, INDEX, "the row that a group leaves", scope)
                case WideLoad() | WideStore():
                    yield from self._wide(statement, scope)
                case TileStep():
                    yield from self._tiles(statement, scope)

    def _loop(self, loop: For, scope: "_NameScope") -> Iterator[str]:
        yield from self._expects(loop.extent, INDEX, f"the extent of loop '{loop.index.name}'", scope)
        if loop.index.dtype is not INDEX:
            yield f"the index of loop '{loop.index.name}' is {loop.index.dtype}, not index"
        own = scope.inside()
        yield from self._bind(loop.index, own, is_local=False)
        if loop.kind is LoopKind.PARALLEL:
            own = own.in_parallel()
        elif loop.bind in (Bind.PART, Bind.THREAD, Bind.GROUP, Bind.TEAM):
            yield f"{loop.bind}s share the iterations of loop '{loop.index.name}', which build on each other"
        yield from self._body(loop.body, own)

    def _bind(self, var: ScalarVar, scope: "_NameScope", *, is_local: bool) -> Iterator[str]:
        if not _NAME.fullmatch(var.name):
            yield f"a variable is called {var.name!r}, which is not an identifier"
        if var.name in scope.variables:
            yield f"'{var.name}' is defined where another '{var.name}' is visible"
        if var.name in self._buffers:
            yield f"'{var.name}' is a variable and a buffer"
        if var.dtype.compute is not var.dtype:
            yield f"'{var.name}' is {var.dtype}, which is not a compute dtype"
        scope.variables[var.name] = var.dtype
        if is_local:
            scope.locals.add(var.name)

    def _assigned(self, statement: SetLocal, scope: "_NameScope") -> Iterator[str]:
        var = statement.var
        yield from self._expects(statement.value, var.dtype, f"the new value of '{var.name}'", scope)
        yield from self._scalar(var, scope)
        if var.name in scope.variables and var.name not in scope.locals:
            shared = var.name in scope.shared
            reason = "belongs to all iterations of a parallel loop" if shared else "is not a local variable"
            yield f"'{var.name}' gets another value, but {reason}"

    def _stored(self, statement: Store, scope: "_NameScope") -> Iterator[str]:
        yield from self._place(statement.buffer, statement.index, scope)
        yield from self._written(statement.buffer)
        wanted = statement.buffer.dtype.compute
        yield from self._expects(statement.value, wanted, f"what is stored to '{statement.buffer.name}'", scope)

    def _combined(self, one: Combine, scope: "_NameScope") -> Iterator[str]:
        own = scope.inside()
        if one.width < 1 or one.width & (one.width - 1):
            yield f"{one.width} threads combine variables, which is not a power of two"
        for var, other, value in zip(one.variables, one.others, one.values, strict=True):
            if var.name not in scope.locals:
                yield f"'{var.name}' is combined, but is not a local variable"
            if other.name not in own.variables:
                yield from self._bind(other, own, is_local=False)
            yield from self._expects(other, var.dtype, f"what is combined with '{var.name}'", own)
            yield from self._expects(value, var.dtype, f"the new value of '{var.name}'", _seeing(one.others, scope))
        for var, before in zip(one.variables if one.before else (), one.before, strict=True):
            if before.name not in scope.locals:
                yield f"'{before.name}' gets what threads before have, but is not a local variable"
            yield from self._expects(before, var.dtype, f"what threads before have in '{var.name}'", scope)

    def _exchanged(self, one: Exchange, scope: "_NameScope") -> Iterator[str]:
        yield from self._expects(one.row, INDEX, "the row of an exchange", scope)
        for value, buffer in zip(one.values, one.memory, strict=True):
            yield from self._place(buffer, (Const(one.words.groups - 1, INDEX),), scope)
            yield from self._expects(value, buffer.dtype, f"what is exchanged in '{buffer.name}'", scope)
            if buffer.space is not Space.GROUP:
                yield f"'{buffer.name}' gets values of all groups, but is not in group memory"

    def _wide(self, one: WideLoad | WideStore, scope: "_NameScope") -> Iterator[str]:
        buffer = one.buffer
        parts = one.variables if isinstance(one, WideLoad) else one.values
        yield from self._place(buffer, one.index, scope)
        if one.count * buffer.dtype.bits % 32:
            yield f"{one.count} elements of '{buffer.name}' are not a whole number of words"
        if isinstance(one, WideStore):
            yield from self._written(buffer)
        for part in parts:
            if isinstance(one, WideStore):
                kind = part.dtype if one.has_words else buffer.dtype.compute
                yield from self._expects(part, kind, f"what is stored to '{buffer.name}'", scope)
            elif isinstance(part, ScalarVar):
                yield from self._bind(part, scope, is_local=False)

    def _tiles(self, one: TileStep, scope: "_NameScope") -> Iterator[str]:
        for value in one.scalars:
            yield from self._scalar(value, scope)
        for buffer in one.writes:
            yield from self._written(buffer)
            if buffer.space not in (Space.GROUP, Space.OWN):
                yield f"'{buffer.name}' is not a tile: it is not in group memory"

    def _written(self, buffer: Buffer) -> Iterator[str]:
        if buffer.name in self._buffers and buffer.name not in self._writable:
            yield f"input '{buffer.name}' is written"

    # --- contractions ---------------------------------------------------------------------------------------------

    def _contraction(self, one: Contraction, scope: "_NameScope") -> Iterator[str]:
        for what, names, extents in (("free", one.free, one.extents), ("bound", one.bound, one.reduced)):
            if len(names) != len(extents):
                yield f"a contraction has {len(names)} {what} indices and {len(extents)} extents"
            if any(extent < 0 for extent in extents):
                yield f"a contraction has a negative extent in {list(extents)}"
        if one.accumulator.compute is not one.accumulator or one.accumulator.kind == "bool":
            yield f"a contraction accumulates in {one.accumulator}, which is not an accumulator dtype"
        yield from self._indices(one, scope)
        yield from self._written(one.out)
        if one.out in (one.a, one.b):
            yield f"a contraction reads its own result '{one.out.name}'"
        for name, factor, place in (
            ("a", one.a_value, Load(one.a, one.a_index)),
            ("b", one.b_value, Load(one.b, one.b_index)),
        ):
            if factor is not None and place not in tuple(visit(factor)):
                yield f"factor {name} of a contraction does not contain {scalar_text(place)}"
        for memory in () if one.template is None else one.template.memory:
            if memory.name not in scope.memory or memory.name not in self._writable:
                yield f"a template uses '{memory.name}', which is not allocated before"

    def _indices(self, one: Contraction, scope: "_NameScope") -> Iterator[str]:
        """Check where each index of a contraction is used."""
        free = scope.inside()
        for var in one.free:
            yield from self._bind(var, free, is_local=False)
        bound = free.inside()
        for var in one.bound:
            yield from self._bind(var, bound, is_local=False)
        for var in (*one.free, *one.bound):
            if var.dtype is not INDEX:
                yield f"index '{var.name}' of a contraction is {var.dtype}, not index"
        total = free.inside()
        # Loops are expanded around all of this, so the name of the accumulator must not be in scope outside.
        yield from self._bind(ScalarVar(ACCUMULATOR, one.accumulator), total, is_local=False)
        yield from self._place(one.out, one.out_index, free)
        yield from self._place(one.a, one.a_index, bound)
        yield from self._place(one.b, one.b_index, bound)
        for factor in one.factors:
            yield from self._scalar(factor, bound)
            if factor.dtype.kind == "bool":
                yield f"a contraction multiplies the bool {scalar_text(factor)}"
        if one.valid is not None:
            yield from self._expects(one.valid, BOOL, "the condition of a contraction", bound)
        yield from self._expects(one.epilogue, one.out.dtype.compute, f"what is stored to '{one.out.name}'", total)

    # --- structures -----------------------------------------------------------------------------------------------

    def _structure(self, one: Structure, scope: "_NameScope") -> Iterator[str]:
        """The problems of a structured statement. Its loops may nest in any order, so its names must be new."""
        what = one.called
        own = scope.inside()
        for axis in one.axes:
            if axis.index.dtype is not INDEX:
                yield f"index '{axis.index.name}' of {what} is {axis.index.dtype}, not index"
            if axis.extent < 0:
                yield f"{what} has a negative extent {axis.extent}"
        indices = [axis.index for axis in one.axes]
        others = (*(var for use in one.uses() for var in use.variables), *one.result_variables)
        for var in (*indices, *(var for var in dict.fromkeys(others) if var not in indices)):
            yield from self._bind(var, own, is_local=False)
        for use in one.uses():
            yield from self._expects(use.value, use.dtype, use.what, _seeing(use.variables, scope))
        for element in one.elements:
            if Load(element.buffer, element.index) not in tuple(visit(element.scalar)):
                yield f"an element of {what} does not contain {scalar_text(Load(element.buffer, element.index))}"
        yield from self._results(one, what, _seeing(one.result_variables, scope))

    def _results(self, one: Structure, what: str, scope: "_NameScope") -> Iterator[str]:
        read = {part.buffer for value in one.scalars for part in visit(value) if isinstance(part, Load)}
        for result in one.results:
            yield from self._place(result.buffer, result.index, scope)
            yield from self._written(result.buffer)
            wanted = result.buffer.dtype.compute
            yield from self._expects(result.value, wanted, f"what is stored to '{result.buffer.name}'", scope)
            if result.buffer in read:
                yield f"{what} reads its own result '{result.buffer.name}'"

    # --- expressions ----------------------------------------------------------------------------------------------

    def _expects(self, value: Scalar, dtype: DType, what: str, scope: "_NameScope") -> Iterator[str]:
        yield from self._scalar(value, scope)
        if value.dtype is not dtype:
            yield f"{what} is {value.dtype}, not {dtype}: {scalar_text(value)}"

    def _place(self, buffer: Buffer, index: tuple[Scalar, ...], scope: "_NameScope") -> Iterator[str]:
        known = self._buffers.get(buffer.name)
        if known is None:
            yield f"'{buffer.name}' is not a buffer of the kernel"
        elif known is not buffer and not _is_same_memory(known, buffer):
            yield f"'{buffer.name}' is not the buffer that the kernel declares"
        elif buffer.name not in scope.memory:
            yield f"'{buffer.name}' is used where it is not allocated"
        if len(index) != len(buffer.shape):
            yield f"'{buffer.name}' has {len(buffer.shape)} axes and {len(index)} indices"
        for one in index:
            yield from self._expects(one, INDEX, f"an index of '{buffer.name}'", scope)
        for one, extent in zip(index, buffer.shape, strict=False):
            # An index into an empty axis is never reached: the loops around it have no iterations.
            if isinstance(one, Const) and extent and not is_symbolic(extent) and not _is_within(one, extent):
                yield f"index {one.value} of '{buffer.name}' is outside of {list(buffer.shape)}"

    def _scalar(self, value: Scalar, scope: "_NameScope") -> Iterator[str]:
        if isinstance(value, Load):
            yield from self._place(value.buffer, value.index, scope)
            return
        for part in children(value):
            yield from self._scalar(part, scope)
        yield from (f"{problem}: {scalar_text(value)}" for problem in self._own(value, scope))

    def _own(self, value: Scalar, scope: "_NameScope") -> Iterator[str]:
        """The problems of an expression whose operands are valid."""
        match value:
            case Const():
                yield from _constant(value)
            case ScalarVar(name, dtype):
                known = scope.variables.get(name)
                if known is None:
                    yield f"'{name}' is used where it is not defined"
                elif known is not dtype:
                    yield f"'{name}' is {known} and used as {dtype}"
            case Unary(op, operand):
                yield from _accepts(op, operand)
            case Binary(op, left, right):
                yield from _same(left, right)
                yield from _accepts(op, left)
            case Compare(_, left, right):
                yield from _same(left, right)
            case Select(cond, then, otherwise):
                if cond.dtype is not BOOL:
                    yield f"a selection by a {cond.dtype}, not a bool"
                yield from _same(then, otherwise)
            case Cast(_, dtype):
                if dtype.compute is not dtype:
                    yield f"a cast to {dtype}, which is not a compute dtype"
            case Bits():
                yield from _bits(value)
            case Round(operand, storage):
                if operand.dtype is not storage.compute:
                    yield f"a {operand.dtype} cannot be stored as {storage}"
            case Math(function, args):
                yield from _named(function, args)
            case _:
                yield "no expression"


class _NameScope:
    """The variables and buffers in scope, and the variables that can be assigned."""

    def __init__(self, memory: set[str]) -> None:
        self.memory = memory
        """The names of the buffers in scope."""
        self.variables: dict[str, DType] = {}
        self.locals: set[str] = set()
        self.shared: set[str] = set()
        """Locals declared outside of a parallel loop, as seen inside of it."""

    def inside(self) -> "_NameScope":
        """A nested scope: its definitions are not visible outside."""
        made = _NameScope(set(self.memory))
        made.variables, made.locals, made.shared = dict(self.variables), set(self.locals), set(self.shared)
        return made

    def in_parallel(self) -> "_NameScope":
        """The scope of a loop whose iterations run concurrently."""
        made = self.inside()
        made.shared |= made.locals
        made.locals = set()
        return made


def _seeing(variables: tuple[ScalarVar, ...], scope: _NameScope) -> _NameScope:
    """The scope of an expression for which a structure binds additional variables."""
    own = scope.inside()
    own.variables |= {var.name: var.dtype for var in variables}
    return own


def _constant(value: Const) -> Iterator[str]:
    number, dtype = value.value, value.type
    if dtype.compute is not dtype:
        yield f"a constant of {dtype}, which is not a compute dtype"
    elif isinstance(number, Dim) and dtype is not INDEX:
        yield f"a dynamic size as {dtype}, not index"
    elif dtype.kind != "float" and not dtype.minimum <= number <= dtype.maximum:
        yield f"a constant outside of {dtype}"
    elif dtype.kind != "float" and number != int(number):
        yield f"a fraction as {dtype}"


def _is_same_memory(one: Buffer, other: Buffer) -> bool:
    """Whether two buffers are equal for all dynamic sizes, not only at their bounds."""
    return (
        one == other
        and is_same_shape(one.shape, other.shape)
        and is_same_shape(one.actual_strides, other.actual_strides)
    )


def _is_within(index: Const, extent: int) -> bool:
    return isinstance(index.value, Dim) or 0 <= index.value < extent


def _same(left: Scalar, right: Scalar) -> Iterator[str]:
    if left.dtype is not right.dtype:
        yield f"operands are {left.dtype} and {right.dtype}"


def _accepts(op: str, operand: Scalar) -> Iterator[str]:
    if op not in _KINDS:
        yield f"'{op}' is not an operation"
    elif operand.dtype.kind not in _KINDS[op]:
        yield f"'{op}' of {operand.dtype}"


def _bits(value: Bits) -> Iterator[str]:
    source, target, storage = value.operand.dtype, value.type, value.storage
    if INDEX in (source, target):
        yield "positions have no bits of their own: cast them"
        return
    if storage is None:
        if source.bits != target.bits or target.compute is not target:
            yield f"the bits of {source} are not those of a {target}"
        return
    pair = {source.name, target.name}
    if not storage.is_small_float or pair != {"f32", f"u{storage.bits}"}:
        yield f"codes of {storage} are not between {source} and {target}"


def _named(function: str, args: tuple[Scalar, ...]) -> Iterator[str]:
    if function not in MATH:
        yield f"'{function}' is not a function"
    elif len(args) != MATH[function]:
        yield f"'{function}' takes {MATH[function]} arguments, not {len(args)}"
    for one in args:
        if one.dtype.kind != "float":
            yield f"'{function}' of {one.dtype}"
        elif one.dtype is not args[0].dtype:
            yield f"'{function}' of {args[0].dtype} and {one.dtype}"
