"""``GraphBuilder``: graphs made by programs. What it builds equals what the same text would give.

Operands, dimensions and indices are written as in the language (``"W[l]"``, ``"3*D"``, numbers in decimal) or given as
IR values. Declarations and inferred results are given back as ``Variable``, a name that can stand for either.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar, overload

import numpy as np

from openinfer.dtypes import ALIASES, DTYPES, DType, dtype_of
from openinfer.errors import Code, Diagnostic, GraphError, counted
from openinfer.ir.arguments import as_written
from openinfer.ir.expr import Expr, Num
from openinfer.ir.graph import (
    NO_CONSTRAINTS,
    Assign,
    Await,
    Barrier,
    Block,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Constraints,
    Dep,
    Graph,
    Input,
    Loop,
    MemoryKind,
    Node,
    NodeKind,
    Op,
    Return,
    Scope,
    SizeDecl,
    Transfer,
    VarDecl,
    Yield,
)
from openinfer.ir.operand import Access, Operand
from openinfer.ir.operand import Literal as LiteralOperand
from openinfer.ir.operand_text import parse_access, parse_expr, parse_operand
from openinfer.ir.validate import validate
from openinfer.ir.values import (
    AttrValue,
    BoolValue,
    DTypeList,
    DTypeValue,
    ExprList,
    ExprValue,
    FloatList,
    FloatValue,
    IntValue,
    StrValue,
    VarValue,
    init_value,
)

Size = int | np.integer[Any] | str | Expr
Number = bool | int | float | np.generic
Place = str | Operand | Number
Target = str | Access
Param = Number | str | DType | Expr | AttrValue | Sequence["int | float | str | DType | Expr"]
T = TypeVar("T")


class Variable(str):
    """The name of a variable, or of a loop's index, in the graph that is being built."""

    __slots__ = ()


@dataclass(frozen=True)
class Var:
    """The name of a constant, given as the value of a parameter."""

    name: str


class GraphBuilder:
    """Builds a graph step by step.

    >>> build = GraphBuilder()
    >>> _ = build.variable("dynamic", "x", "f32", ["B"])
    >>> _ = build.variable("volatile", "y", "f32", ["B"], init=5.0)
    >>> with build.block("entry"):
    ...     build.op("add", "x", "x", out="y")
    ...     with build.loop("layers", "l", 0, 3):
    ...         h = build.op("relu", "y", negative_slope=0.1)
    ...         build.op("add", h, 1.0, out="y")
    ...     build.return_()
    >>> print(build.build().to_text())
    dynamic {
        x: f32[B];
    }
    <BLANKLINE>
    volatile {
        y: f32[B] @init(5.0);
    }
    <BLANKLINE>
    block entry {
        op add(x, x) >> y;
        loop layers (l in 0..3) {
            relu_1 = op relu(y, negative_slope=0.1);
            op add(relu_1, 1.0) >> y;
        }
        return;
    }
    <BLANKLINE>
    """

    def __repr__(self) -> str:
        return f"<GraphBuilder: {counted(len(self._vars), 'variable')}, {counted(len(self._blocks), 'block')}>"

    def __init__(self) -> None:
        self._sizes: list[SizeDecl] = []
        self._vars: dict[str, VarDecl] = {}
        self._blocks: list[tuple[str, list[Node], Constraints]] = []
        self._bodies: list[list[Node]] = []
        self._inferred = 0

    def build(self, *, strict: bool = False) -> Graph:
        """The finished graph; all its structural problems are raised together."""
        blocks = [Block(name, tuple(nodes), constraints) for name, nodes, constraints in self._blocks]
        graph = as_written(Graph.of(self._sizes, self._vars.values(), blocks))
        errors = [problem for problem in validate(graph, strict=strict) if not problem.code.is_warning]
        if errors:
            raise GraphError(*errors)
        # Reading it back checks every name, number and string as strictly as a document from elsewhere.
        return Graph.from_json(graph.to_json(), name="<built>", strict=strict)

    # --- declarations ---------------------------------------------------------------------------------------------

    def size(self, name: str, value: Size, relation: Literal[":=", "<="] = ":=") -> str:
        """Declare a fixed size (``:=``) or a dynamic one up to a bound (``<=``)."""
        if any(name == size.name for size in self._sizes):
            raise _refusal(Code.DUPLICATE_DECLARATION, f"the size {name!r} is declared twice")
        if relation not in (":=", "<="):
            raise _refusal(Code.SYNTAX, f"a size is declared with ':=' or '<=', not {relation!r}")
        self._sizes.append(SizeDecl(name, relation, _expr(value)))
        return name

    def variable(  # noqa: PLR0913  (as many as a declaration has parts)
        self,
        kind: Literal["dynamic", "volatile", "constant", "persistent"] | MemoryKind,
        name: str,
        dtype: str | DType,
        dims: Sequence[Size] = (),
        *,
        init: Number | None = None,
        ref: str | None = None,
        indices: Sequence[str] = (),
        pattern: str | None = None,
        table: bool = False,
        auto_dim: Sequence[str] = (),
        fixed: Mapping[str, Size] | None = None,
    ) -> Variable:
        """Declare a variable and return its name."""
        if name in self._vars:
            raise _refusal(Code.DUPLICATE_DECLARATION, f"the variable {name!r} is declared twice")
        if kind not in tuple(MemoryKind):
            raise _refusal(Code.WRONG_SECTION, f"{kind!r} is not a memory kind; they are {', '.join(MemoryKind)}")
        for text in (ref, pattern):
            _text(text or "")
        element = dtype_of(dtype)
        initial = None if init is None else init_value(_number(init), element)
        if init is not None and initial is None:
            raise _refusal(Code.BAD_ATTRIBUTE, f"{init!r} is not a value of {element.name}")
        self._vars[name] = VarDecl(
            name,
            MemoryKind(kind),
            element,
            tuple(map(_expr, dims)),
            initial,
            ref,
            pattern,
            tuple(indices),
            table,
            tuple(auto_dim),
            tuple((index, _expr(bound)) for index, bound in (fixed or {}).items()),
        )
        return Variable(name)

    # --- regions --------------------------------------------------------------------------------------------------

    @contextmanager
    def block(self, name: str, constraints: Mapping[str, Param] | None = None) -> Iterator[None]:
        """The nodes added inside the ``with`` are the block's."""
        if any(name == other for other, _, _ in self._blocks):
            raise _refusal(Code.DUPLICATE_DECLARATION, f"the block {name!r} is defined twice")
        nodes: list[Node] = []
        self._blocks.append((name, nodes, _constraints(constraints)))
        yield from self._inside(nodes)

    @contextmanager
    def loop(self, name: str, index: str, start: Size, end: Size) -> Iterator[Variable]:
        """The nodes added inside the ``with`` are repeated; it gives the index, which can be an operand there."""
        nodes: list[Node] = []
        for _ in self._inside(nodes):
            yield Variable(index)
        self._add(Loop(name, index, _expr(start), _expr(end), tuple(nodes)))

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """The nodes added inside the ``with`` form a named region."""
        nodes: list[Node] = []
        yield from self._inside(nodes)
        self._add(Scope(_text(name), tuple(nodes)))

    def _inside(self, nodes: list[Node]) -> Iterator[None]:
        self._bodies.append(nodes)
        try:
            yield
        finally:
            self._bodies.pop()

    def _add(self, kind: NodeKind, constraints: Mapping[str, Param] | None = None) -> None:
        if not self._bodies:
            raise _refusal(Code.NO_ENTRY, "nodes can be added only inside 'with build.block(...)'")
        self._bodies[-1].append(Node(kind, _constraints(constraints)))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def assign(self, name: str, dtype: str | DType, dims: Sequence[Size] = ()) -> Variable:
        """Declare a temporary and return its name."""
        self._add(Assign(name, dtype_of(dtype), tuple(map(_expr, dims))))
        return Variable(name)

    @overload
    def op(
        self,
        name: str,
        /,
        *inputs: Place,
        out: Target | Sequence[Target],
        results: None = None,
        named: Mapping[str, Place] | None = None,
        params: Mapping[str, "Param | Var"] | None = None,
        constraints: Mapping[str, Param] | None = None,
        **keywords: "Param | Var | Operand",
    ) -> None: ...

    @overload
    def op(
        self,
        name: str,
        /,
        *inputs: Place,
        out: None = None,
        results: str | None = None,
        named: Mapping[str, Place] | None = None,
        params: Mapping[str, "Param | Var"] | None = None,
        constraints: Mapping[str, Param] | None = None,
        **keywords: "Param | Var | Operand",
    ) -> Variable: ...

    @overload
    def op(
        self,
        name: str,
        /,
        *inputs: Place,
        out: None = None,
        results: int | list[str] | tuple[str, ...],
        named: Mapping[str, Place] | None = None,
        params: Mapping[str, "Param | Var"] | None = None,
        constraints: Mapping[str, Param] | None = None,
        **keywords: "Param | Var | Operand",
    ) -> tuple[Variable, ...]: ...

    def op(
        self,
        name: str,
        /,
        *inputs: Place,
        out: Target | Sequence[Target] | None = None,
        results: int | str | list[str] | tuple[str, ...] | None = None,
        named: Mapping[str, Place] | None = None,
        params: Mapping[str, "Param | Var"] | None = None,
        constraints: Mapping[str, Param] | None = None,
        **keywords: "Param | Var | Operand",
    ) -> Variable | tuple[Variable, ...] | None:
        """Add a computation: into ``out``, or into new temporaries with the types that the op infers, which it returns.

        ``results`` is what these are called, or how many there are where it is not one. Inputs that are numbers are
        literals. Keywords are parameters of the op, and inputs by the op's own names for them where they are variables;
        a string that is the name of a dtype is that dtype. ``named`` and ``params`` say the same as mappings.
        """
        if out is not None and results is not None:
            raise _refusal(Code.REPEATED, "results go into what 'out' names, or into new ones that 'results' names")
        names = () if out is not None else self._new_names(name, results)
        outputs = [Access(one) for one in names] if out is None else list(map(_access, _targets(out)))
        given = [Input(_operand(place)) for place in inputs]
        labelled = {label: value for label, value in keywords.items() if isinstance(value, Operand)}
        given += [Input(_operand(place), label) for label, place in (*(named or {}).items(), *labelled.items())]
        attrs = [(label, _value(value)) for label, value in (params or {}).items()]
        attrs += [(label, _keyword(value)) for label, value in keywords.items() if label not in labelled]
        for one in names:
            self._add(Assign(one, None, None))
        self._add(Op(name, tuple(given), tuple(attrs), tuple(outputs)), constraints)
        if out is not None:
            return None
        return names[0] if results is None or isinstance(results, str) else names

    def _new_names(self, op: str, results: int | str | list[str] | tuple[str, ...] | None) -> tuple[Variable, ...]:
        """Names for inferred results: those that are given, or the op's with a number."""
        if isinstance(results, str):
            return (Variable(results),)
        if isinstance(results, list | tuple):
            return tuple(map(Variable, results))
        found: list[Variable] = []
        while len(found) < (1 if results is None else results):
            self._inferred += 1
            name = Variable(f"{op}_{self._inferred}")
            if name not in self._vars:
                found.append(name)
        return tuple(found)

    def transfer(self, src: Place, dst: Target) -> None:
        """Copy a value."""
        self._add(Transfer(_operand(src), _access(dst)))

    def branch(self, then_block: str, cond: str | None = None, else_block: str | None = None) -> None:
        """Run a block, or one of two."""
        self._add(Branch(cond, then_block, else_block))

    def return_(self, *names: str) -> None:
        """End the block."""
        self._add(Return(names))

    def barrier(self) -> None:
        """Let nothing move across."""
        self._add(Barrier())

    def dep(self, after: str, before: str) -> None:
        """Keep the nearest earlier ``after`` before the nearest later ``before``."""
        self._add(Dep(after, before))

    def cache_read(self, src: Target, dst: Target) -> None:
        """Read persistent memory."""
        self._add(CacheRead(_access(src), _access(dst)))

    def cache_write(self, src: Place, dst: Target) -> None:
        """Write persistent memory."""
        self._add(CacheWrite(_operand(src), _access(dst)))

    def cache_increment(self, target: str, amount: Size = 1) -> None:
        """Add to a persistent integer."""
        self._add(CacheIncrement(target, _expr(amount)))

    def cache_decrement(self, target: str, amount: Size = 1) -> None:
        """Subtract from a persistent integer."""
        self._add(CacheDecrement(target, _expr(amount)))

    def cache_reset(self, target: Target) -> None:
        """Put persistent memory back to its initial value."""
        self._add(CacheReset(_access(target)))

    def yield_(self, *names: str) -> None:
        """Hand variables over."""
        self._add(Yield(names))

    def await_(self, *names: str) -> None:
        """Wait for variables."""
        self._add(Await(names))


def _refusal(code: Code, message: str) -> GraphError:
    return GraphError(Diagnostic(code, message))


def _parsed(parser: Callable[[str], T], text: str) -> T:
    try:
        return parser(text)
    except ValueError as error:
        raise _refusal(Code.SYNTAX, f"{text!r:.80}: {error}") from error


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _refusal(Code.SYNTAX, f"expected text, found {value!r:.80}")


def _expr(value: Size) -> Expr:
    if isinstance(value, str):
        return _parsed(parse_expr, value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return Num(int(value))
    if isinstance(value, Expr):
        return value
    raise _refusal(Code.SYNTAX, f"expected an integer or an expression, found {value!r:.80}")


def _operand(place: Place) -> Operand:
    if isinstance(place, bool | int | float | np.generic):
        return LiteralOperand(_number(place))
    return place if isinstance(place, Operand) else _parsed(parse_operand, _text(place))


def _targets(out: Target | Sequence[Target] | None) -> Sequence[Target]:
    assert out is not None
    return [out] if isinstance(out, str | Access) else out


def _access(target: Target) -> Access:
    return target if isinstance(target, Access) else _parsed(parse_access, _text(target))


def _number(value: Number) -> BoolValue | IntValue | FloatValue:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool):
        return BoolValue(plain)
    return IntValue(plain) if isinstance(plain, int) else FloatValue(float(plain))


def _value(value: "Param | Var") -> AttrValue:
    match value:
        case bool() | int() | float() | np.generic():
            return _number(value)
        case str():
            return StrValue(value)
        case Var():
            return VarValue(value.name)
        case DType():
            return DTypeValue(value)
        case list() | tuple():
            return _list(value)
        case Num():
            return IntValue(value.value)
        case _ if isinstance(value, Expr):
            return ExprValue(value)
        case _ if isinstance(value, AttrValue):
            return value
        case _:
            raise _refusal(Code.SYNTAX, f"{value!r:.80} cannot be the value of a parameter")


def _keyword(value: "Param | Var | Operand") -> AttrValue:
    """A keyword of an op. Which names are inputs is settled when the graph is built, and by the op when it is bound."""
    assert not isinstance(value, Operand)
    if isinstance(value, Variable):
        return VarValue(str(value))
    if isinstance(value, str) and (value in DTYPES or value in ALIASES):
        return DTypeValue(dtype_of(value))
    return _value(value)


def _list(values: "Sequence[int | float | str | DType | Expr]") -> AttrValue:
    if any(isinstance(value, bool) for value in values):
        raise _refusal(Code.SYNTAX, f"a list holds numbers, size expressions or dtypes, not {values!r:.80}")
    dtypes = tuple(value for value in values if isinstance(value, DType))
    if dtypes and len(dtypes) == len(values):
        return DTypeList(dtypes)
    numbers = tuple(value for value in values if isinstance(value, int | float | np.integer | np.floating))
    if any(isinstance(value, float | np.floating) for value in numbers) and len(numbers) == len(values):
        return FloatList(tuple(FloatValue(float(value)) for value in numbers))
    return ExprList(tuple(_expr(value) for value in values))  # type: ignore[arg-type]


def _constraints(values: Mapping[str, Param] | None) -> Constraints:
    return MappingProxyType({key: _value(value) for key, value in values.items()}) if values else NO_CONSTRAINTS
