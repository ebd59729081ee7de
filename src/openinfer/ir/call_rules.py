"""Validates blocks with parameters and their calls, before any model is known."""

from collections.abc import Iterator
from dataclasses import replace

from openinfer.errors import Advice, Code, Diagnostic, Fix, FixPlace, GraphPlace, Span, counted, nearest
from openinfer.ir.declaration_rules import dimension_problems
from openinfer.ir.expr import Expr, names
from openinfer.ir.graph import (
    NO_CONSTRAINTS,
    Await,
    Block,
    BlockCall,
    BlockParam,
    BlockParamKind,
    Graph,
    Loop,
    Node,
    Return,
    VarDecl,
    walk,
)
from openinfer.ir.operand import Access, Literal, ModelRef, Single, index_of
from openinfer.ir.rules import blocks_run
from openinfer.ir.text import block_head, param_text
from openinfer.ir.uses import node_uses
from openinfer.ir.values import ExprList, ExprValue, VarValue


def call_problems(graph: Graph) -> Iterator[Diagnostic]:
    """All problems of parameters and calls."""
    run: set[str] = set()
    for block in graph.blocks.values():
        for node in walk(block.nodes):
            run.update(blocks_run(node))
            if isinstance(node.kind, BlockCall):
                yield from _call(graph, block, node, node.kind)
    has_unknown = not run <= graph.blocks.keys()
    for block in graph.blocks.values():
        if block.params is not None:
            yield from _params(graph, block, block.params)
            if block.name not in run and block.name != "entry" and not has_unknown:
                message = f"nothing calls the block {block.name!r}"
                yield Diagnostic(Code.UNCALLED_BLOCK, message, block.span, f"call {block.name}(...);")


def declared_at(block: Block) -> str:
    """A note for errors at a call: where the parameters of the block are declared."""
    params = tuple(replace(param, name=own_name(param.name)) for param in block.params or ())
    shown = replace(block, name=block.name.partition(".")[0], params=params, constraints=NO_CONSTRAINTS)
    return f"declared{place_words(block.span)}: {block_head(shown)}"


def own_name(name: str) -> str:
    """The name that a block uses for its own variable, which others see as ``layer.h``."""
    return name.rpartition(".")[2]


def place_words(place: GraphPlace | None) -> str:
    """A location in words, for notes."""
    if not isinstance(place, Span):
        return "" if place is None else f" at {place.facts().get('path', '')}"
    line, column = place.source.position(place.start)
    return f" at {place.source.name}:{line}:{column}"


# --- parameters -------------------------------------------------------------------------------------------------------


def _params(graph: Graph, block: Block, params: tuple[BlockParam, ...]) -> Iterator[Diagnostic]:
    if block.name == "entry":
        message = "entry has no parameters: what the caller gives is declared in 'dynamic'"
        yield Diagnostic(Code.BAD_CALL, message, block.span, "dynamic { x: f32[N]; }")
    if block.nodes and isinstance(block.nodes[0].kind, Await):
        message = f"the block {block.name!r} has parameters, and a block that awaits has none"
        yield Diagnostic(Code.BAD_YIELD, message, block.nodes[0].span)
    used = _used(block)
    seen: set[str] = set()
    for param in params:
        span = param.span or block.span
        if param.name in seen:
            message = f"the parameter {param.name!r} is declared twice"
            yield Diagnostic(Code.DUPLICATE_DECLARATION, message, span)
        elif param.name in graph.vars:
            message = f"{param.name!r} is a variable of the graph, and cannot be a parameter of {block.name!r} too"
            yield Diagnostic(Code.DUPLICATE_DECLARATION, message, span, "choose another name")
        elif param.name not in used:
            message = f"the parameter {param.name!r} of {block.name!r} is not used"
            yield Diagnostic(Code.UNUSED_PARAM, message, span)
        seen.add(param.name)
        for dim in param.dims:
            yield from dimension_problems(dim, span)
    for node in walk(block.nodes):
        if isinstance(node.kind, Loop) and node.kind.index in seen:
            message = f"{node.kind.index!r} is a parameter of {block.name!r}, and cannot be the index of a loop in it"
            yield Diagnostic(Code.DUPLICATE_DECLARATION, message, node.span)


def _used(block: Block) -> set[str]:
    """All names that the nodes of a block use."""
    found: set[str] = set()
    for node in walk(block.nodes):
        uses = node_uses(node.kind)
        accesses = [*uses.writes, *(one.operand for one in uses.reads if isinstance(one.operand, Access))]
        exprs: list[Expr | None] = list(uses.exprs)
        for access in accesses:
            found.add(access.base)
            for index in access.indices:
                exprs += [index.value] if isinstance(index, Single) else [index.start, index.end]
        for _, value in getattr(node.kind, "attrs", ()):
            match value:
                case VarValue(name):
                    found.add(name)
                case ExprValue(expr):
                    exprs.append(expr)
                case ExprList(several):
                    exprs += several
        found |= {name for expr in exprs if expr is not None for name in names(expr)}
        found |= {f for one in uses.reads if isinstance(one.operand, ModelRef) for f in _placeholders(one.operand)}
    return found


def _placeholders(operand: ModelRef) -> list[str]:
    return [part.partition("}")[0] for part in operand.name.split("{")[1:]] if operand.formatted else []


# --- calls ------------------------------------------------------------------------------------------------------------


def _call(graph: Graph, caller: Block, node: Node, kind: BlockCall) -> Iterator[Diagnostic]:
    target = graph.blocks.get(kind.block)
    if target is None:
        advice = nearest(kind.block, graph.blocks)
        yield Diagnostic(Code.UNKNOWN_BLOCK, f"there is no block {kind.block!r}", node.span, advice)
        return
    if target.params is None or kind.block == "entry":
        branch = f"branch {kind.block};"
        is_plain = not kind.args and not kind.outputs
        advice = Advice(branch, *[Fix(branch, place=FixPlace.STATEMENT)] * is_plain) if kind.block != "entry" else None
        message = f"{kind.block!r} has no parameters: a branch runs it" if advice else "entry cannot be called"
        yield Diagnostic(Code.BAD_CALL, message, node.span, advice)
        return
    if len(kind.args) != len(target.params):
        wanted = f"{counted(len(target.params), 'argument')}" + (
            f" ({', '.join(param.name for param in target.params)})" if target.params else ""
        )
        message = f"{kind.block!r} takes {wanted}, but {_given(len(kind.args))}"
        yield Diagnostic(Code.BAD_CALL, message, node.span, None, (declared_at(target),))
        return
    for param, given in zip(target.params, kind.args, strict=True):
        problem = _argument_problem(graph, caller, param, given)
        if problem is not None:
            span: GraphPlace | None = getattr(given, "span", None) or node.span
            yield Diagnostic(Code.BAD_CALL, problem, span, None, (declared_at(target),))
    last = target.nodes[-1].kind if target.nodes else None
    returned = len(last.vars) if isinstance(last, Return) else 0
    if returned != len(kind.outputs):
        gives = f"returns {counted(returned, 'result')}" if returned else "returns nothing"
        message = f"{kind.block!r} {gives}, but {_given(len(kind.outputs), 'named')}"
        yield Diagnostic(Code.BAD_CALL, message, node.span, None, (declared_at(target),))
    if len(set(kind.outputs)) < len(kind.outputs):
        yield Diagnostic(Code.REPEATED, "a call writes the same output twice", node.span)


def _given(count: int, how: str = "given") -> str:
    return f"{count} {'is' if count == 1 else 'are'} {how}"


def _argument_problem(graph: Graph, caller: Block, param: BlockParam, given: object) -> str | None:
    """What is wrong with an argument regardless of its type; None if nothing is."""
    own = {one.name: one.kind for one in caller.params or ()}
    wants = f"the parameter '{param_text(param)}'"
    match param.kind:
        case BlockParamKind.TENSOR:
            is_operand = isinstance(given, Access | ModelRef | Literal)
            return None if is_operand else f"{wants} takes a tensor, and '{given}' is an index expression"
        case BlockParamKind.INDEX:
            is_index = index_of(given) is not None if isinstance(given, Access | ModelRef | Literal) else True
            return None if is_index else f"{wants} takes an integer expression, not '{given}'"
        case BlockParamKind.PREFIX:
            name = given.base if isinstance(given, Access) and not given.bracketed else None
            declared = graph.vars.get(name) if name is not None else None
            is_table = isinstance(declared, VarDecl) and declared.pattern is not None
            if is_table or (name is not None and own.get(name) is BlockParamKind.PREFIX):
                return None
            return f"{wants} takes the name of a prefix table, not '{given}'"
