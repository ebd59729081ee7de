"""Notebook representations: tables and texts as HTML without scripts, so that every viewer shows them."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openinfer.ir.graph import Graph, VarDecl

_MOST_ROWS = 200
_LONGEST = 20_000
"""The most characters shown of a text."""


def captioned(title: str, *parts: str) -> str:
    """Parts below a caption."""
    return f"<div><p><b>{escape(title)}</b></p>{''.join(parts)}</div>"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows as a table.

    >>> html_table(["name"], [["<x>"]])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;x&gt;</td></tr></tbody></table>'
    """
    found = list(rows)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in found[:_MOST_ROWS])
    more = f"<p>and {len(found) - _MOST_ROWS} more</p>" if len(found) > _MOST_ROWS else ""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def folded(title: str, text: str) -> str:
    """A text that expands on a click."""
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n..."
    return f"<details><summary>{escape(title)}</summary><pre>{escape(shown)}</pre></details>"


def graph_html(graph: "Graph") -> str:
    """A graph: its variables and its text."""
    rows = [(one.name, one.kind.value, _type(one)) for one in graph.vars.values()]
    texts = folded(f"text, {graph.node_count} nodes in {len(graph.blocks)} blocks", graph.to_text())
    return captioned(repr(graph).strip("<>"), html_table(("variable", "kind", "type"), rows), texts)


def _type(variable: "VarDecl") -> str:
    dims = f"[{', '.join(map(str, variable.dims))}]" if variable.dims else ""
    table = f" by {', '.join(variable.table_indices)}" if variable.table_indices else ""
    return f"{variable.dtype.name}{dims}{table}"
