"""The outline of a text: its sections, blocks, loops and scopes; and the ranges that can be folded."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lark import Tree

from openinfer.lang.tokens import SourceToken, trivia
from openinfer.lang.trees import STree, word
from openinfer.language_service.declared import extent_of, place_of
from openinfer.language_service.symbols import OutlineEntry
from openinfer.language_service.text import TextRange


def outline_of(tree: STree, tokens: Sequence[SourceToken]) -> tuple[OutlineEntry, ...]:
    """The sections and blocks of a text, with what they contain."""
    return tuple(_entries(tree, SourceBodies(tokens), ""))


class SourceBodies:
    """The ends of bodies in braces; an unclosed body ends after everything."""

    def __init__(self, tokens: Sequence[SourceToken]) -> None:
        last = tokens[-1].end_pos + 1 if tokens else 0
        opened = {one.start_pos: last for one in tokens if one.type == "_LBRACE"}
        closing = opened | _closing(tokens)
        self._starts, self._ends = list(closing), list(closing.values())

    def end_behind(self, offset: int) -> int:
        """The end of the first body that begins at or after an offset."""
        place = bisect_left(self._starts, offset)
        return self._ends[place] if place < len(self._ends) else offset


def _closing(tokens: Sequence[SourceToken]) -> dict[int, int]:
    """The ends of bodies in braces by their starts, in text order."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for token in tokens:
        if token.type == "_LBRACE":
            opened.append(token.start_pos)
        elif token.type == "_RBRACE" and opened:
            found[opened.pop()] = token.end_pos
    return dict(sorted(found.items()))


def _entries(tree: STree, bodies: SourceBodies, section: str) -> Iterator[OutlineEntry]:
    for child in tree.children:
        if not isinstance(child, Tree):
            continue
        match child.data:
            case "sizes" | "memory" | "state":
                name = word(child.children[0])
                yield _entry(name, "section", child, 0, bodies, tuple(_entries(child, bodies, name)))
            case "size" | "variable" | "buffer":
                kind = "size" if child.data == "size" else section
                yield OutlineEntry(
                    word(child.children[0]), kind, extent_of(child), place_of(child.children[0]), _type_of(child)
                )
            case "block":
                yield _entry(
                    word(child.children[1]), "block", child, 1, bodies, tuple(_entries(child, bodies, section))
                )
            case "loop":
                yield _entry(word(child.children[1]), "loop", child, 1, bodies, tuple(_entries(child, bodies, section)))
            case "scope":
                yield _entry(
                    word(child.children[1]).strip('"'),
                    *("scope", child, 1, bodies, tuple(_entries(child, bodies, section))),
                )
            case "wrapped" | "graph" | "loop_body":
                yield from _entries(child, bodies, section)


def _entry(
    name: str, kind: str, tree: STree, place: int, bodies: SourceBodies, children: tuple[OutlineEntry, ...]
) -> OutlineEntry:
    extent, chosen = extent_of(tree), place_of(tree.children[place])
    end = extent.end if kind == "block" else bodies.end_behind(chosen.end)  # the tree of a block includes its braces
    return OutlineEntry(name, kind, TextRange(extent.start, max(extent.end, end)), chosen, children=children)


def _type_of(tree: STree) -> str:
    tokens = [one for one in tree.children if isinstance(one, SourceToken) and one.type == "DTYPE"]
    return tokens[0].value if tokens else ""


@dataclass(frozen=True)
class FoldingArea:
    """A range that an editor can fold: a comment, or a body in braces."""

    range: TextRange
    is_comment: bool = False


def folding_areas(text: str, tokens: Sequence[SourceToken]) -> list[FoldingArea]:
    """The ranges that can be folded: bodies in braces, comments of several lines, and runs of comment lines."""
    found = [FoldingArea(TextRange(start, end)) for start, end in _closing(tokens).items() if "\n" in text[start:end]]
    run: TextRange | None = None
    for kind, piece, start in trivia(text):
        if kind == "comment":
            run = TextRange(start if run is None else run.start, start + len(piece))
        elif kind == "token" or piece.count("\n") > 1:
            found += _comment_area(text, run)
            run = None
    found += _comment_area(text, run)
    return sorted(found, key=lambda one: one.range)


def _comment_area(text: str, run: TextRange | None) -> list[FoldingArea]:
    if run is None or "\n" not in text[run.start : run.end]:
        return []
    return [FoldingArea(run, is_comment=True)]
