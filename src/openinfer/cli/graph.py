"""``openinfer check``, ``fmt`` and ``graph``: graphs as text and as JSON."""

import difflib
import json
import os
import sys
from typing import Annotated

import typer

from openinfer.errors import Diagnostic, GraphError, OpenInferError
from openinfer.ir import Graph, validate
from openinfer.ir.schema import graph_schema
from openinfer.lang import load_graph, parse
from openinfer.lang.format import format_source
from openinfer.lang.source import decode_source, is_json, read_source
from openinfer.oinf.atomic import atomic_file

GraphFile = Annotated[
    str, typer.Argument(metavar="GRAPH", help="A graph: .oig source, .json, or - for standard input.")
]
Output = Annotated[str | None, typer.Option("--output", "-o", help="Where to write; standard output without it.")]


def check(
    graph: GraphFile,
    strict: Annotated[bool, typer.Option("--strict", help="Unknown attributes are errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print diagnostics for a program.")] = False,
) -> None:
    """Find everything that is wrong with a graph, all at once; the exit status is 1 if there are errors."""
    from openinfer.cli.app import print_diagnostics

    problems = _problems(graph, strict=strict)
    errors = [problem for problem in problems if not problem.code.is_warning]
    if as_json:
        typer.echo(json.dumps([problem.facts() for problem in problems], indent=2))
    else:
        print_diagnostics(problems)
        if not problems:
            typer.echo(f"{_name(graph)}: no problems")
    if errors:
        raise typer.Exit(1)


def _problems(path: str, *, strict: bool) -> list[Diagnostic]:
    try:
        text = _text(path)
        if not _holds_json(path, text):
            return parse(text, _name(path), strict=strict).problems
        return validate(Graph.from_json(text, name=_name(path), strict=strict), strict=strict)
    except GraphError as error:
        return list(error.diagnostics)


def _text(path: str) -> str:
    return decode_source(sys.stdin.buffer.read(), "<stdin>") if path == "-" else read_source(path)


def _holds_json(path: str, text: str) -> bool:
    """JSON is told by the file's name, and on standard input by its first character."""
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
    """Text on standard output, in UTF-8 wherever we are: source files are."""
    typer.echo(text.encode("utf-8"), nl=False)


convert = typer.Typer(name="graph", help="Turn graphs into JSON and back.", no_args_is_help=True)


@convert.command("to-json")
def to_json(
    graph: GraphFile,
    output: Output = None,
    spans: Annotated[bool, typer.Option("--spans", help="Add where each element stands in the source.")] = False,
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
    """The graph of a file, or of standard input where the path is ``-``; its errors are raised together."""
    if path != "-":
        return load_graph(path)
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
