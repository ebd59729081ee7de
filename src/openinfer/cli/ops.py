"""``openinfer ops``: which ops there are, and how each one is used."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from openinfer.errors import Code, Diagnostic, OpenInferError
from openinfer.ir.op_names import op_called

if TYPE_CHECKING:
    from openinfer.ops import OpRecord


def ops(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="An op; without one, all are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts for a program.")] = False,
) -> None:
    """List the operators, or show one: how it is written, what it computes, its inputs, parameters and dtypes."""
    # Imported here because the other commands need no op records.
    from openinfer.ops.catalogue import families, op_facts, op_markdown

    if name is None:
        found = families()
        if as_json:
            everything = [op_facts(record) for members in found.values() for record in members]
            typer.echo(json.dumps(everything, indent=2, allow_nan=False))
        else:
            _print_families(found)
        return
    try:
        record = _named(name)
    except OpenInferError as error:
        if not as_json:
            raise
        facts = {"ok": False, "diagnostics": [diagnostic.facts() for diagnostic in error.diagnostics]}
        typer.echo(json.dumps(facts, indent=2))
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(op_facts(record), indent=2, allow_nan=False))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(op_markdown(record)))
    else:
        typer.echo(op_markdown(record), nl=False)


def _named(name: str) -> "OpRecord":
    from openinfer.ops import OPS

    if name not in OPS:
        advice = op_called(name)
        raise OpenInferError(Diagnostic(Code.UNKNOWN_OP, f"there is no op {name!r}", help=advice))
    return OPS[name]


def _rows(members: "list[OpRecord]") -> list[tuple[str, str, str]]:
    from openinfer.ops import usage
    from openinfer.ops.catalogue import dtypes_text

    return [(record.name, usage(record).removeprefix("op "), dtypes_text(record.dtypes)) for record in members]


def _print_families(found: "dict[str, list[OpRecord]]") -> None:
    """Tables on a terminal; elsewhere lines of any length, so that a program can search them."""
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console()
        for family, members in found.items():
            table = Table("op", "usage", "dtypes", title=family, title_justify="left", box=box.SIMPLE_HEAD)
            for row in _rows(members):
                table.add_row(*map(Text, row))
            console.print(table)
        return
    for family, members in found.items():
        rows = _rows(members)
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        lines = [f"  {name:<{widths[0]}}  {written:<{widths[1]}}  {kinds}" for name, written, kinds in rows]
        typer.echo("\n".join([family, *lines, ""]))
