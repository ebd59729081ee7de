"""``GraphBuilder``: builds graphs from Python. The result equals the graph that the same text gives.

Operands, dimensions and indices are written as in the language (``"W[l]"``, ``"3*D"``, numbers in decimal) or given as
IR values. Declarations and inferred results return a ``Variable``, a name that can be used wherever either can.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, overload

from openinfer.dtypes import DType, dtype_of
from openinfer.errors import Code, GraphError, counted
from openinfer.ir.arguments import as_written
from openinfer.ir.builder_values import (
    BlockParamLike,
    Destination,
    Number,
    OperandLike,
    ParamLike,
    Size,
    Var,
    Variable,
    access_of,
    argument_of,
    constraints_of,
    expr_of,
    keyword_of,
    number_of,
    operand_of,
    param_of,
    refusal,
    targets_of,
    text_of,
    value_of,
)
from openinfer.ir.expr import Expr
from openinfer.ir.graph import (
    Assign,
    Await,
    Barrier,
    Block,
    BlockCall,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
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
from openinfer.ir.validate import validate
from openinfer.ir.values import init_value

__all__ = ["GraphBuilder", "Var", "Variable"]


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
        self._blocks: list[tuple[Block, list[Node]]] = []
        self._regions = _Regions()
        self._new_names = _NewNames(self._vars)

    def build(self, *, strict: bool = False) -> Graph:
        """Finish and validate the graph; all structural problems are raised together."""
        blocks = [replace(block, nodes=tuple(nodes)) for block, nodes in self._blocks]
        graph = as_written(Graph.of(self._sizes, self._vars.values(), blocks))
        errors = [problem for problem in validate(graph, strict=strict) if not problem.code.is_warning]
        if errors:
            raise GraphError(*errors)
        # Reading it back checks every name, number and string as strictly as a document from elsewhere.
        return Graph.from_json(graph.to_json(), name="<built>", strict=strict)

    # --- declarations ---------------------------------------------------------------------------------------------

    def size(self, name: str, value: Size, relation: Literal[":=", "<="] = ":=") -> str:
        """Declare a size: fixed (``:=``), or dynamic up to a bound (``<=``)."""
        if any(name == size.name for size in self._sizes):
            raise refusal(Code.DUPLICATE_DECLARATION, f"the size {name!r} is declared twice")
        if relation not in (":=", "<="):
            raise refusal(Code.SYNTAX, f"a size is declared with ':=' or '<=', not {relation!r}")
        self._sizes.append(SizeDecl(name, relation, expr_of(value)))
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
            raise refusal(Code.DUPLICATE_DECLARATION, f"the variable {name!r} is declared twice")
        if kind not in tuple(MemoryKind):
            raise refusal(Code.WRONG_SECTION, f"{kind!r} is not a memory kind; they are {', '.join(MemoryKind)}")
        for text in (ref, pattern):
            text_of(text or "")
        element = dtype_of(dtype)
        initial = None if init is None else init_value(number_of(init), element)
        if init is not None and initial is None:
            raise refusal(Code.BAD_ATTRIBUTE, f"{init!r} is not a value of {element.name}")
        self._vars[name] = VarDecl(
            name,
            MemoryKind(kind),
            element,
            tuple(map(expr_of, dims)),
            initial,
            ref,
            pattern,
            tuple(indices),
            table,
            tuple(auto_dim),
            tuple((index, expr_of(bound)) for index, bound in (fixed or {}).items()),
        )
        return Variable(name)

    # --- regions --------------------------------------------------------------------------------------------------

    @contextmanager
    def block(
        self,
        name: str,
        constraints: Mapping[str, ParamLike] | None = None,
        *,
        params: Mapping[str, BlockParamLike] | None = None,
    ) -> Iterator[None]:
        """Define a block; nodes added inside the ``with`` belong to it.

        A block with ``params`` is run by ``call``. Each parameter is a dtype with dimensions, ``("f32", ["T", "D"])``,
        a dtype alone for a scalar, ``"index"`` or ``"prefix"``.
        """
        if any(name == other.name for other, _ in self._blocks):
            raise refusal(Code.DUPLICATE_DECLARATION, f"the block {name!r} is defined twice")
        nodes: list[Node] = []
        given = None if params is None else tuple(param_of(own, kind) for own, kind in params.items())
        self._blocks.append((Block(name, (), constraints_of(constraints), params=given), nodes))
        with self._regions.inside(nodes):
            yield

    @contextmanager
    def loop(self, name: str, index: str, start: Size, end: Size) -> Iterator[Variable]:
        """Repeat the nodes added inside the ``with``; yields the index, which can be an operand there."""
        nodes: list[Node] = []
        with self._regions.inside(nodes):
            yield Variable(index)
        self._regions.add(Loop(name, index, expr_of(start), expr_of(end), tuple(nodes)))

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Group the nodes added inside the ``with`` into a named region."""
        nodes: list[Node] = []
        with self._regions.inside(nodes):
            yield
        self._regions.add(Scope(text_of(name), tuple(nodes)))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def assign(self, name: str, dtype: str | DType, dims: Sequence[Size] = ()) -> Variable:
        """Declare a temporary and return its name."""
        self._regions.add(Assign(name, dtype_of(dtype), tuple(map(expr_of, dims))))
        return Variable(name)

    @overload
    def op(
        self,
        name: str,
        /,
        *inputs: OperandLike,
        out: Destination | Sequence[Destination],
        results: None = None,
        named: Mapping[str, OperandLike] | None = None,
        params: Mapping[str, "ParamLike | Var"] | None = None,
        constraints: Mapping[str, ParamLike] | None = None,
        **keywords: "ParamLike | Var | Operand",
    ) -> None: ...

    @overload
    def op(
        self,
        name: str,
        /,
        *inputs: OperandLike,
        out: None = None,
        results: str | None = None,
        named: Mapping[str, OperandLike] | None = None,
        params: Mapping[str, "ParamLike | Var"] | None = None,
        constraints: Mapping[str, ParamLike] | None = None,
        **keywords: "ParamLike | Var | Operand",
    ) -> Variable: ...

    @overload
    def op(
        self,
        name: str,
        /,
        *inputs: OperandLike,
        out: None = None,
        results: int | list[str] | tuple[str, ...],
        named: Mapping[str, OperandLike] | None = None,
        params: Mapping[str, "ParamLike | Var"] | None = None,
        constraints: Mapping[str, ParamLike] | None = None,
        **keywords: "ParamLike | Var | Operand",
    ) -> tuple[Variable, ...]: ...

    def op(
        self,
        name: str,
        /,
        *inputs: OperandLike,
        out: Destination | Sequence[Destination] | None = None,
        results: int | str | list[str] | tuple[str, ...] | None = None,
        named: Mapping[str, OperandLike] | None = None,
        params: Mapping[str, "ParamLike | Var"] | None = None,
        constraints: Mapping[str, ParamLike] | None = None,
        **keywords: "ParamLike | Var | Operand",
    ) -> Variable | tuple[Variable, ...] | None:
        """Add an op. It writes to ``out`` or, without it, to new temporaries of inferred types, which are returned.

        ``results`` names these temporaries, or says how many there are if not one. Inputs that are numbers become
        literals. Keywords are parameters of the op; a keyword that is a variable is the input of that name, and a
        string that names a dtype is that dtype. ``named`` and ``params`` give the same inputs and parameters as
        mappings.
        """
        if out is not None and results is not None:
            raise refusal(Code.REPEATED, "results go into what 'out' names, or into new ones that 'results' names")
        names = () if out is not None else self._new_names.of(name, results)
        outputs = [Access(one) for one in names] if out is None else list(map(access_of, targets_of(out)))
        given = [Input(operand_of(place)) for place in inputs]
        labelled = {label: value for label, value in keywords.items() if isinstance(value, Operand)}
        given += [Input(operand_of(place), label) for label, place in (*(named or {}).items(), *labelled.items())]
        attrs = [(label, value_of(value)) for label, value in (params or {}).items()]
        attrs += [(label, keyword_of(value)) for label, value in keywords.items() if label not in labelled]
        for one in names:
            self._regions.add(Assign(one, None, None))
        self._regions.add(Op(name, tuple(given), tuple(attrs), tuple(outputs)), constraints)
        if out is not None:
            return None
        return names[0] if results is None or isinstance(results, str) else names

    def transfer(self, src: OperandLike, dst: Destination) -> None:
        """Copy a value from ``src`` to ``dst``."""
        self._regions.add(Transfer(operand_of(src), access_of(dst)))

    def branch(self, then_block: str, cond: str | None = None, else_block: str | None = None) -> None:
        """Run a block; with a condition, run one of two."""
        self._regions.add(Branch(cond, then_block, else_block))

    def call(self, block: str, *args: OperandLike | Expr, out: Destination | Sequence[Destination] = ()) -> None:
        """Run a block with parameters, and write what it returns to ``out``.

        >>> build = GraphBuilder()
        >>> x = build.variable("dynamic", "x", "f32", [4])
        >>> with build.block("shifted", params={"a": ("f32", ["N"]), "k": "index"}):
        ...     build.op("add", "a", "k", out="a")
        ...     build.return_("a")
        >>> with build.block("entry"):
        ...     with build.loop("turns", "i", 0, 3):
        ...         build.call("shifted", x, "2*i", out=x)
        ...     build.return_("x")
        >>> print(build.build().to_text().partition("block shifted")[2].splitlines()[0])
        (a: f32[N], k: index) {
        """
        given = tuple(argument_of(one) for one in args)
        self._regions.add(BlockCall(block, given, tuple(access_of(one) for one in targets_of(out))))

    def return_(self, *names: str) -> None:
        """End the block; in entry, ``names`` are the graph's outputs."""
        self._regions.add(Return(names))

    def barrier(self) -> None:
        """Forbid moving nodes across this point."""
        self._regions.add(Barrier())

    def dep(self, after: str, before: str) -> None:
        """Keep the nearest earlier ``after`` before the nearest later ``before``."""
        self._regions.add(Dep(after, before))

    def cache_read(self, src: Destination, dst: Destination) -> None:
        """Read persistent memory into ``dst``."""
        self._regions.add(CacheRead(access_of(src), access_of(dst)))

    def cache_write(self, src: OperandLike, dst: Destination) -> None:
        """Write ``src`` to persistent memory."""
        self._regions.add(CacheWrite(operand_of(src), access_of(dst)))

    def cache_increment(self, target: str, amount: Size = 1) -> None:
        """Add to a persistent integer."""
        self._regions.add(CacheIncrement(target, expr_of(amount)))

    def cache_decrement(self, target: str, amount: Size = 1) -> None:
        """Subtract from a persistent integer."""
        self._regions.add(CacheDecrement(target, expr_of(amount)))

    def cache_reset(self, target: Destination) -> None:
        """Reset persistent memory to its initial value."""
        self._regions.add(CacheReset(access_of(target)))

    def yield_(self, *names: str) -> None:
        """Hand variables over to the blocks that await them."""
        self._regions.add(Yield(names))

    def await_(self, *names: str) -> None:
        """Wait for variables that were yielded."""
        self._regions.add(Await(names))


class _Regions:
    """The stack of open bodies; nodes are added to the innermost one."""

    def __init__(self) -> None:
        self._bodies: list[list[Node]] = []

    @contextmanager
    def inside(self, nodes: list[Node]) -> Iterator[None]:
        self._bodies.append(nodes)
        try:
            yield
        finally:
            self._bodies.pop()

    def add(self, kind: NodeKind, constraints: Mapping[str, ParamLike] | None = None) -> None:
        if not self._bodies:
            raise refusal(Code.NO_ENTRY, "nodes can be added only inside 'with build.block(...)'")
        self._bodies[-1].append(Node(kind, constraints_of(constraints)))


class _NewNames:
    """Names for inferred results: the given ones, or the op's name with an unused number."""

    def __init__(self, taken: Container[str]) -> None:
        self._taken = taken
        self._last = 0

    def of(self, op: str, results: int | str | list[str] | tuple[str, ...] | None) -> tuple[Variable, ...]:
        if isinstance(results, str):
            return (Variable(results),)
        if isinstance(results, list | tuple):
            return tuple(map(Variable, results))
        found: list[Variable] = []
        while len(found) < (1 if results is None else results):
            self._last += 1
            name = Variable(f"{op}_{self._last}")
            if name not in self._taken:
                found.append(name)
        return tuple(found)
