"""``openinfer check``, ``fmt`` and ``graph``: graphs as text and as JSON."""

import difflib
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from openinfer.cli.options import ModelPath, SizeOptions, StrictOption, parsed_sizes
from openinfer.errors import Diagnostic, GraphError, OpenInferError
from openinfer.ir import Graph, validate
from openinfer.ir.schema import graph_schema
from openinfer.lang import parse
from openinfer.lang.format import format_source
from openinfer.lang.source import is_json, read_source, read_standard_input
from openinfer.oinf import ModelLoader
from openinfer.oinf.atomic import atomic_file

if TYPE_CHECKING:
    from openinfer.check.bound import BoundGraph

GraphFile = Annotated[
    str, typer.Argument(metavar="GRAPH", help="A graph: .oig source, .json, or - for standard input.")
]
Output = Annotated[str | None, typer.Option("--output", "-o", help="Where to write; standard output without it.")]


def check(
    graph: GraphFile,
    model: ModelPath = None,
    size: SizeOptions = None,
    strict: StrictOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print diagnostics for a program.")] = False,
) -> None:
    """Find everything that is wrong with a graph, all at once; the exit status is 1 if there are errors.

    With a model or sizes, every link, type and shape is checked as well; without them, only what the graph by itself
    says: its structure, and the types too where it needs neither.
    """
    from openinfer.cli.app import print_diagnostics

    report = _checked(graph, model, parsed_sizes(size), strict=strict)
    errors = [problem for problem in report.problems if not problem.code.is_warning]
    if as_json:
        typer.echo(json.dumps([problem.facts() for problem in report.problems], indent=2))
    else:
        print_diagnostics(report.problems)
        if not errors and (report.summary or not report.problems):
            typer.echo(
                "\n".join([f"{_name(graph)}: no {'errors' if report.problems else 'problems'}", *report.summary])
            )
    if errors:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Report:
    problems: list[Diagnostic]
    summary: list[str] = field(default_factory=list)


def _checked(path: str, model_path: str | None, sizes: Mapping[str, int], *, strict: bool) -> _Report:
    try:
        found, problems = _structure(path, strict=strict)
        if _has_errors(problems):
            return _Report(problems)
        # Imported here because fmt and graph need no op records.
        from openinfer.check import check as checked
        from openinfer.check.without_model import without_what_a_model_gives

        model = ModelLoader.open(model_path) if model_path is not None else None
        binding = checked(found, model, sizes, strict=strict)
    except OpenInferError as error:
        return _Report(list(error.diagnostics))
    more = [problem for problem in binding.problems if problem not in problems]
    is_asked_for = model is not None or bool(sizes)
    more = more if is_asked_for else without_what_a_model_gives(more)
    return _Report([*problems, *more], _summary(binding.bound) if binding.bound and is_asked_for else [])


def _structure(path: str, *, strict: bool) -> tuple[Graph, list[Diagnostic]]:
    text = _text(path)
    if _holds_json(path, text):
        found = Graph.from_json(text, name=_name(path), strict=strict)
        return found, validate(found, strict=strict)
    parsed = parse(text, _name(path), strict=strict)
    return parsed.graph, parsed.problems


def _has_errors(problems: list[Diagnostic]) -> bool:
    return any(not problem.code.is_warning for problem in problems)


def _summary(bound: "BoundGraph") -> list[str]:
    """What a graph is bound to, in a few lines."""
    from openinfer.check.bound import FromModel, FromPattern

    variables = list(bound.vars.values())
    kinds = Counter("temporary" if one.is_temporary else one.kind.value for one in variables)
    linked = sum(isinstance(one.origin, FromModel | FromPattern) for one in variables)
    source = f"; {linked} filled from {bound.model.path}" if bound.model is not None else ""
    sizes = [f"{name}={value}" for name, value in bound.sizes.items()]
    sizes += [f"{name}<={value}" for name, value in bound.bounds.items()]
    return [
        f"  variables  {len(variables)}: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}{source}",
        f"  nodes      {bound.graph.node_count}",
        f"  sizes      {', '.join(sizes) or 'none'}",
    ]


def _text(path: str) -> str:
    return read_standard_input() if path == "-" else read_source(path)


def _holds_json(path: str, text: str) -> bool:
    """Whether a text is JSON: by the file name, or on standard input by its first character."""
    return text.lstrip().startswith("{") if path == "-" else is_json(path)


def _name(path: str) -> str:
    return "<stdin>" if path == "-" else path


def fmt(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help=".oig files, or - for standard input.")],
    only_check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if something would change.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; show what would change.")] = False,
) -> None:
    """Put graph source into canonical form; comments stay."""
    changed = 0
    problems: list[Diagnostic] = []
    for path in files:
        try:
            text = _text(path)
            formatted = format_source(text, _name(path))
            changed += text != formatted
            _deliver(path, text, formatted, only_check=only_check, diff=diff)
        except OpenInferError as error:
            problems += error.diagnostics
    if problems:
        raise GraphError(*problems)
    if (only_check or diff) and changed:
        raise typer.Exit(1)


def _deliver(path: str, text: str, formatted: str, *, only_check: bool, diff: bool) -> None:
    if diff:
        lines = (text.splitlines(keepends=True), formatted.splitlines(keepends=True))
        for line in difflib.unified_diff(*lines, _name(path), f"{_name(path)} (formatted)"):
            _print(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    elif only_check:
        if text != formatted:
            typer.echo(f"would change {_name(path)}")
    elif path == "-":
        _print(formatted)
    elif text != formatted:
        with atomic_file(path) as sink:
            sink.write(formatted.encode("utf-8"))
        typer.echo(f"changed {path}")


def _print(text: str) -> None:
    """Print text as UTF-8 in every locale, because source files are UTF-8."""
    typer.echo(text.encode("utf-8"), nl=False)


convert = typer.Typer(name="graph", help="Turn graphs into JSON and back.", no_args_is_help=True)


@convert.command("to-json")
def to_json(
    graph: GraphFile,
    output: Output = None,
    spans: Annotated[bool, typer.Option("--spans", help="Add the source position of each element.")] = False,
) -> None:
    """Write a graph as JSON."""
    loaded = loaded_graph(graph)
    _write(output, json.dumps(loaded.to_json(spans=spans), indent=2, sort_keys=True, ensure_ascii=False) + "\n")


@convert.command("from-json")
def from_json(graph: GraphFile, output: Output = None) -> None:
    """Write a JSON graph as source text."""
    _write(output, Graph.from_json(_text(graph), name=_name(graph)).to_text())


@convert.command("schema")
def schema(output: Output = None) -> None:
    """Write the JSON Schema of graph documents."""
    _write(output, json.dumps(graph_schema(), indent=2, sort_keys=True) + "\n")


def loaded_graph(path: str) -> Graph:
    """The graph of a file, or of standard input if the path is ``-``; all errors are raised together.

    Graphs with unknown ops can be drawn and written as JSON; whatever runs them rejects them.
    """
    text = _text(path)
    if _holds_json(path, text):
        return Graph.from_json(text, name=_name(path))
    parsed = parse(text, _name(path))
    errors = [problem for problem in parsed.problems if not problem.code.is_warning]
    if errors:
        raise GraphError(*errors)
    return parsed.graph


def _write(output: str | None, text: str) -> None:
    if output is None or output == "-":
        _print(text)
        return
    with atomic_file(os.fspath(output)) as sink:
        sink.write(text.encode("utf-8"))
