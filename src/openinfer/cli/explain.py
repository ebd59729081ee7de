"""``openinfer explain``: what a diagnostic code means."""

import json
import sys
from typing import Annotated

import typer

from openinfer.errors import Code, explanation, nearest


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A code such as E703; without one, all codes are listed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts for a program.")] = False,
) -> None:
    """Say what a diagnostic code means, with a wrong and a right example."""
    if code is None:
        titles = {str(known): explanation(known).title for known in Code}
        typer.echo(json.dumps(titles, indent=2) if as_json else "\n".join(f"{k}  {v}" for k, v in titles.items()))
        return
    if code.upper() not in list(Code):
        known = nearest(code.upper(), map(str, Code))
        message = f"there is no code {code!r}; {known or 'openinfer explain lists them all'}"
        raise typer.BadParameter(message)
    found = explanation(Code(code.upper()))
    if as_json:
        facts = {"code": str(found.code), "title": found.title, "wrong": found.wrong, "right": found.right}
        typer.echo(json.dumps(facts | {"markdown": found.markdown}, indent=2))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(found.markdown))
    else:
        typer.echo(found.markdown, nl=False)
