"""Binds a graph to a model: one readable sequence of stages, all adding to one list of problems."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.check.concurrency import concurrency_problems
from openinfer.check.effects import EffectsOf
from openinfer.check.links import Links
from openinfer.check.named import Named
from openinfer.check.problems import Problems
from openinfer.check.reach import MOST_REACHED
from openinfer.check.sizes import Sizes
from openinfer.check.specialise import specialised
from openinfer.check.typing import Typing
from openinfer.check.without_model import told_once
from openinfer.collection import collection_paused
from openinfer.errors import Code, Diagnostic, GraphError, Span, counted
from openinfer.ir import Assign, Graph, validate
from openinfer.ir.expr import Expr, Ref
from openinfer.loops.dim import Dim, is_symbolic
from openinfer.oinf.model import ModelLoader


@dataclass(frozen=True)
class Binding:
    """The outcome of a check: the bound graph, if there are no errors, and all problems."""

    bound: BoundGraph | None
    problems: tuple[Diagnostic, ...]


def bind(
    graph: Graph, model: ModelLoader | None = None, sizes: Mapping[str, int] | None = None, *, strict: bool = False
) -> BoundGraph:
    """Bind a graph to a model and sizes: every size, link and type is resolved. All errors are raised together.

    >>> from openinfer.lang import graph
    >>> bound = bind(graph("dynamic { x: f32[B]; } volatile { y: f32[B]; } block entry { op neg(x) >> y; return; }"),
    ...     sizes={"B": 3})
    >>> str(bound.vars["y"].type)
    'f32[B=3]'
    """
    outcome = check(graph, model, sizes, strict=strict)
    if outcome.bound is None:
        raise GraphError(*(problem for problem in outcome.problems if not problem.code.is_warning))
    return outcome.bound


def check(
    graph: Graph, model: ModelLoader | None = None, sizes: Mapping[str, int] | None = None, *, strict: bool = False
) -> Binding:
    """All problems of a graph with a model, warnings included."""
    require_graph(graph)
    require_surroundings(model, sizes)
    problems = validate(graph, strict=strict)
    if any(not problem.code.is_warning for problem in problems):
        return Binding(None, tuple(problems))
    with collection_paused():
        return _checked(graph, model, sizes or {}, problems)


def require_graph(graph: object) -> None:
    """Refuse anything that is not a graph, such as the text of one."""
    if not isinstance(graph, Graph):
        message = f"expected a Graph, got {type(graph).__name__}"
        raise GraphError(Diagnostic(Code.BAD_SOURCE_FILE, message, None, "graph(text) or load_graph(path) makes one"))


def require_surroundings(model: object, sizes: object) -> None:
    """Refuse anything that is not a model and sizes, such as the path of a model."""
    if not isinstance(model, ModelLoader | None):
        message = f"expected a model, got {type(model).__name__}"
        raise GraphError(Diagnostic(Code.NOT_A_MODEL_FILE, message, None, "ModelLoader.open(path) gives one"))
    if not isinstance(sizes, Mapping | None):
        message = f"sizes are given by name, not as {type(sizes).__name__}"
        raise GraphError(Diagnostic(Code.UNKNOWN_SIZE, message, None, 'write sizes={"B": 4}'))


def _checked(graph: Graph, model: ModelLoader | None, given: Mapping[str, int], found: list[Diagnostic]) -> Binding:
    problems = Problems()
    sizes = Sizes(graph, model, given, problems)
    links = Links(graph.vars, model, sizes, problems)
    expanded = specialised(graph, Named(model, sizes, links, frozenset(), sizes.bounds), problems)
    if expanded is None:
        return Binding(None, _ordered([*found, *problems.found], model, sizes, links))
    source, graph = graph, expanded.graph
    temporaries = {node.kind.name for node in graph.walk() if isinstance(node.kind, Assign)}
    temporaries |= {name for block in graph.blocks.values() for name in block.locals}
    variables = graph.vars.keys() | temporaries
    if len(graph.blocks) * len(variables) > MOST_REACHED:
        return Binding(None, (*found, _too_many(graph, len(variables))))
    effects = EffectsOf(graph, variables)
    named = Named(model, sizes, links, temporaries, sizes.bounds)
    typing = Typing(graph, named, effects, problems).run()
    problems.found += concurrency_problems(graph, effects, temporaries)
    if not problems.has_errors:
        problems.found += _elsewhere(graph, named, effects)
    everything = _ordered([*found, *problems.found], model, sizes, links)
    if problems.has_errors:
        return Binding(None, everything)
    too_long = Problems()
    bound_vars = {**typing.vars, **_inferred(graph, named, effects, typing.vars, too_long)}
    if too_long.has_errors:
        return Binding(None, (*everything, *too_long.found))
    bound = BoundGraph(
        graph=graph,
        source=source,
        origins=expanded.origins,
        model=model,
        sizes=dict(sizes.fixed),
        bounds=dict(sizes.bounds),
        vars=bound_vars,
        ops=typing.ops,
        effects=effects.nodes,
        reached=effects.reached,
        constants=typing.constants,
        warnings=everything,
    )
    return Binding(bound, everything)


def _ordered(
    problems: list[Diagnostic], model: ModelLoader | None, sizes: Sizes, links: Links
) -> tuple[Diagnostic, ...]:
    ordered = sorted(problems, key=_position)
    return tuple(told_once(ordered, sizes, links) if model is None else ordered)


def _too_many(graph: Graph, variables: int) -> Diagnostic:
    """Tracking which block touches which variable, through others, would take too much memory."""
    last = [*graph.blocks.values()][-1]
    message = (
        f"{counted(len(graph.blocks), 'block')} with {counted(variables, 'variable')}: which block touches"
        f" which variable, through others too, is tracked for up to {MOST_REACHED:,} pairs"
    )
    return Diagnostic(Code.OUT_OF_MEMORY, message, last.nodes[0].span, "inline some blocks where they are run")


def _position(problem: Diagnostic) -> int:
    """The sort key of a problem: text order; problems of documents keep the order in which they were found."""
    return problem.span.start if isinstance(problem.span, Span) else -1


def _elsewhere(graph: Graph, named: Named, effects: EffectsOf) -> Iterator[Diagnostic]:
    """Problems that only appear when dynamic sizes are below their bounds."""
    values = named.sizes.sample(_dimensions(graph))
    if values is None:
        return
    problems = Problems()
    Typing(graph, named.elsewhere(values), effects, problems).run()
    chosen = ", ".join(f"{name}={value}" for name, value in values.items())
    for problem in problems.found:
        yield replace(problem, notes=(*problem.notes, f"dynamic sizes can be smaller than their bounds, here {chosen}"))


def _inferred(
    graph: Graph, named: Named, effects: EffectsOf, variables: Mapping[str, BoundVar], problems: Problems
) -> dict[str, BoundVar]:
    """The temporaries whose types ops infer, with shapes that are symbolic in the dynamic sizes."""
    untyped = [variable for variable in variables.values() if variable.dims is None]
    if not untyped or not named.sizes.bounds:
        return {}
    sizes = {name: Dim(bound, Ref(name)) for name, bound in named.sizes.bounds.items()}
    others = Problems()
    found = Typing(graph, named.elsewhere(sizes), effects, others).run().vars
    # Mismatches have been found with numbers already; symbolically, an extent can also be too long to write down.
    problems.found += [problem for problem in others.found if problem.code is Code.TOO_DEEP]
    return {
        one.name: replace(one, shape=found[one.name].shape, is_dynamic=any(map(is_symbolic, found[one.name].shape)))
        for one in untyped
        if one.name in found
    }


def _dimensions(graph: Graph) -> Iterator[Expr]:
    for variable in graph.vars.values():
        yield from variable.dims
    for block in graph.blocks.values():
        for param in block.params or ():
            yield from param.dims
    for node in graph.walk():
        if isinstance(node.kind, Assign) and node.kind.dims:
            yield from node.kind.dims
