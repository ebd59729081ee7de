"""Programs as trees: what the generator makes, the interpreter runs and the text says. Nothing here is OpenInfer's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Expr = int | str | tuple[str, "Expr", "Expr"]
"""A number, a name (loop index, scalar variable or size), or an operation on two of them."""
Dim = tuple[int, tuple[tuple[str, int], ...]]
"""A dimension: a number, and how often each dynamic size is added to it."""
Sizes = Mapping[str, int]


def dim(value: int | str) -> Dim:
    """A dimension that is a number or a size.

    >>> dim_text(dim_sum(dim("T"), dim(1)))
    'T + 1'
    """
    return (value, ()) if isinstance(value, int) else (0, ((value, 1),))


def dim_sum(one: Dim, other: Dim) -> Dim:
    """The sum of two dimensions."""
    counts: dict[str, int] = dict(one[1])
    for name, count in other[1]:
        counts[name] = counts.get(name, 0) + count
    return (one[0] + other[0], tuple(sorted(counts.items())))


def dim_times(one: Dim, factor: int) -> Dim:
    """A multiple of a dimension."""
    return (one[0] * factor, tuple((name, count * factor) for name, count in one[1]))


def dim_text(one: Dim) -> str:
    """A dimension as it is written; equal ones are not always written the same way."""
    number, counts = one
    parts = [name if count == 1 else f"{count}*{name}" for name, count in counts]
    if number % 2 == 0:
        parts = [name if count == 1 else f"{name}*{count}" for name, count in reversed(counts)]
    if number or not parts:
        parts = [*parts, str(number)] if number % 3 else [str(number), *parts]
    return " + ".join(parts)


@dataclass(frozen=True)
class Kind:
    """A dtype with dimensions."""

    dtype: str
    dims: tuple[Dim, ...] = ()

    @property
    def is_static(self) -> bool:
        return not any(counts for _, counts in self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(dim_text, self.dims))}]" if self.dims else self.dtype


@dataclass(frozen=True)
class Dims:
    """Dimensions as the value of a parameter."""

    dims: tuple[Dim, ...]


@dataclass(frozen=True)
class Slice:
    """A part of an axis; missing ends are the edges."""

    start: Expr | None = None
    end: Expr | None = None


Index = Expr | Slice


@dataclass(frozen=True)
class Access:
    """A variable, or with indices (none of them: ``A[]``) a part of it."""

    base: str
    indices: tuple[Index, ...] | None = None


@dataclass(frozen=True)
class Literal:
    """A number as an operand."""

    value: int | float


Operand = Access | Literal


@dataclass(frozen=True)
class Assign:
    name: str
    kind: Kind


@dataclass(frozen=True)
class Op:
    """An op; ``inferred`` outputs are declared by it, with the kinds that come with them."""

    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Access, ...]
    params: tuple[tuple[str, Any], ...] = ()
    inferred: tuple[Kind, ...] = ()


@dataclass(frozen=True)
class Transfer:
    source: Access
    target: Access


@dataclass(frozen=True)
class Read:
    source: Access
    target: str


@dataclass(frozen=True)
class Write:
    source: str
    target: Access


@dataclass(frozen=True)
class Count:
    """An increment (or decrement, where ``down``); without an amount it is one."""

    name: str
    amount: Expr | None = None
    down: bool = False


@dataclass(frozen=True)
class Reset:
    target: Access


@dataclass(frozen=True)
class Loop:
    label: str
    index: str
    start: Expr
    end: Expr
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Scope:
    name: str
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Branch:
    yes: str
    condition: str | None = None
    no: str | None = None


@dataclass(frozen=True)
class Param:
    """A parameter of a block: a tensor of a kind, or ``index`` or ``prefix``; an open one has sizes of its own."""

    name: str
    kind: Kind | str
    is_open: bool = False

    def __str__(self) -> str:
        if not self.is_open or not isinstance(self.kind, Kind) or not self.kind.dims:
            return f"{self.name}: {self.kind}"
        dims = ", ".join(f"N_{self.name}_{place}" for place in range(len(self.kind.dims)))
        return f"{self.name}: {self.kind.dtype}[{dims}]"


@dataclass(frozen=True)
class Call:
    """Runs a block with parameters; an argument is an operand, or an expression for an index."""

    block: str
    args: tuple[Operand | Expr, ...]
    outputs: tuple[Access, ...] = ()


@dataclass(frozen=True)
class Barrier:
    pass


@dataclass(frozen=True)
class Yield:
    names: tuple[str, ...]


@dataclass(frozen=True)
class Await:
    names: tuple[str, ...]


Statement = (
    Assign | Op | Transfer | Read | Write | Count | Reset | Loop | Scope | Branch | Call | Barrier | Yield | Await
)


@dataclass(frozen=True)
class Decl:
    """A variable of a section. ``tensor`` names the model's tensor it is filled from."""

    name: str
    section: str
    kind: Kind
    init: int | float | None = None
    tensor: str | None = None
    indices: tuple[str, ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()
    auto_dim: tuple[str, ...] = ()
    is_table: bool = False
    entries: int = 0
    """How many tensors a prefix table has in the model; it is one where this is not zero."""

    @property
    def is_cache(self) -> bool:
        """Whether it is a cache table or an auto-dim matrix."""
        return self.is_table or bool(self.auto_dim)

    @property
    def is_plain(self) -> bool:
        return not self.indices

    def __str__(self) -> str:
        text = f"{self.name}({', '.join(self.indices)}): {self.kind}" if self.indices else f"{self.name}: {self.kind}"
        if self.is_table:
            text += " @table"
        if self.auto_dim:
            text += f" @auto_dim({', '.join(self.auto_dim)})"
        if self.fixed:
            text += f" @fixed({', '.join(f'{name}={bound}' for name, bound in self.fixed)})"
        if self.entries:
            text += f' @pattern("{self.name}.{{{self.indices[0]}}}")'
        if self.tensor is not None and self.tensor != self.name:
            text += f' @ref("{self.tensor}")'
        if self.init is not None:
            text += f" @init({str(self.init).lower()})"
        return text + ";"


@dataclass(frozen=True)
class Step:
    """What happens before a step (``save``, ``load``, ``reset``, ``restore``), and its inputs."""

    inputs: Mapping[str, Any]
    before: str = ""


@dataclass(frozen=True)
class Program:
    """A graph, its model and the steps to run."""

    seed: int
    sizes: Mapping[str, int]
    decls: tuple[Decl, ...]
    blocks: Mapping[str, tuple[Statement, ...]]
    outputs: tuple[str, ...]
    tensors: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    params: Mapping[str, tuple[Param, ...]] = field(default_factory=dict)
    """The parameters of blocks that are called."""
    returns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """And what they return."""

    def with_blocks(self, blocks: Mapping[str, tuple[Statement, ...]]) -> "Program":
        return replace(self, blocks=blocks)

    def __str__(self) -> str:
        lines = []
        if self.sizes:
            lines.append(f"sizes {{ {' '.join(f'{name} <= {bound};' for name, bound in self.sizes.items())} }}")
        for section in ("dynamic", "volatile", "constant", "persistent"):
            own = [f"    {decl}" for decl in self.decls if decl.section == section]
            if own:
                lines += [f"{section} {{", *own, "}"]
        for name, body in self.blocks.items():
            params = f"({', '.join(map(str, self.params[name]))})" if name in self.params else ""
            lines += [f"block {name}{params} {{", *_lines(body, 1), f"    {self._end(name, body)}", "}"]
        return "\n".join(line for line in lines if line.strip()) + "\n"

    def _end(self, name: str, body: Sequence[Statement]) -> str:
        if name == "entry":
            return f"return {', '.join(self.outputs)};" if self.outputs else "return;"
        if self.returns.get(name):
            return f"return {', '.join(self.returns[name])};"
        return "" if body and isinstance(body[-1], Yield) else "return;"


# --- text -------------------------------------------------------------------------------------------------------------


def expr_text(expr: Expr) -> str:
    """An expression with parentheses around everything that is inside another one."""
    if not isinstance(expr, tuple):
        return str(expr)
    left, right = (f"({expr_text(one)})" if isinstance(one, tuple) else str(one) for one in expr[1:])
    return f"{left} {expr[0]} {right}"


def access_text(access: Operand) -> str:
    """An operand as it is written."""
    if isinstance(access, Literal):
        return str(access.value)
    if access.indices is None:
        return access.base
    # A[] is all of a table, A[..] a slice that happens to be all of it; only the first one resets the extents.
    inside = ", ".join(_index_text(index) for index in access.indices)
    return f"{access.base}[{inside or '..' if access.indices else ''}]"


def _index_text(index: Index) -> str:
    if not isinstance(index, Slice):
        return expr_text(index)
    if index.start is None and index.end is None:
        return ""
    return "..".join("" if end is None else expr_text(end) for end in (index.start, index.end))


def _lines(body: Sequence[Statement], depth: int) -> Iterator[str]:
    margin = "    " * depth
    for statement in body:
        if isinstance(statement, Loop | Scope):
            yield f"{margin}{_head(statement)} {{"
            yield from _lines(statement.body, depth + 1)
            yield f"{margin}}}"
        else:
            yield margin + statement_text(statement)


def _head(statement: Loop | Scope) -> str:
    if isinstance(statement, Scope):
        return f'scope "{statement.name}"'
    start, end = expr_text(statement.start), expr_text(statement.end)
    return f"loop {statement.label} ({statement.index} in {start}..{end})"


def statement_text(statement: Statement) -> str:
    """A statement that has no body, as it is written."""
    match statement:
        case Assign(name, kind):
            return f"assign {name}: {kind};"
        case Op():
            return _op_text(statement)
        case Transfer(source, target):
            return f"transfer {access_text(source)} >> {access_text(target)};"
        case Read(access, name):
            return f"cache.read {access_text(access)} >> {name};"
        case Write(name, access):
            return f"cache.write {name} >> {access_text(access)};"
        case Count(name, amount, down):
            verb = "decrement" if down else "increment"
            return f"cache.{verb} {name};" if amount is None else f"cache.{verb} {expr_text(amount)} {name};"
        case Reset(target):
            return f"cache.reset {access_text(target)};"
        case Branch(yes, None, _):
            return f"branch {yes};"
        case Branch(yes, condition, no):
            return f"branch {condition} {yes} {no};"
        case Call(block, args, outputs):
            given = ", ".join(access_text(one) if isinstance(one, Access | Literal) else expr_text(one) for one in args)
            into = f" >> {', '.join(map(access_text, outputs))}" if outputs else ""
            return f"call {block}({given}){into};"
        case Barrier():
            return "barrier;"
        case Yield(names):
            return f"yield {', '.join(names)};"
        case Await(names):
            return f"await {', '.join(names)};"
        case _:
            return _head(statement)


def _op_text(op: Op) -> str:
    given = [access_text(one) for one in op.inputs] + [f"{name}={_param(value)}" for name, value in op.params]
    outputs = ", ".join(map(access_text, op.outputs))
    call = f"op {op.name}({', '.join(given)})"
    return f"{outputs} = {call};" if op.inferred else f"{call} >> {outputs};"


def _param(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Dims):
        return f"[{', '.join(map(dim_text, value.dims))}]"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


# --- what statements touch --------------------------------------------------------------------------------------------


def expr_names(expr: Expr | None) -> Iterator[str]:
    """The names in an expression."""
    if isinstance(expr, str):
        yield expr
    elif isinstance(expr, tuple):
        yield from expr_names(expr[1])
        yield from expr_names(expr[2])


def index_names(access: Operand) -> Iterator[str]:
    """The names in the indices of an operand."""
    for index in access.indices or () if isinstance(access, Access) else ():
        for one in (index.start, index.end) if isinstance(index, Slice) else (index,):
            yield from expr_names(one)


def walk(body: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, those inside others included."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop | Scope):
            yield from walk(statement.body)


def consumers(program: Program) -> dict[str, tuple[str, ...]]:
    """Blocks that begin with ``await``, and what they await."""
    return {
        name: body[0].names
        for name, body in program.blocks.items()
        if body and isinstance(body[0], Await) and name != "entry"
    }
