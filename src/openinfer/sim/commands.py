"""The commands of the debugger: names, usage, and the lines of output."""

from dataclasses import dataclass
from typing import NamedTuple

from openinfer.errors import OpenInferError, nearest

PLACES = "b 12 | b line 7 | b op matmul | b write h | b nan [h] | b change h | b if max(h) > 3"
_MOST = 1_000_000_000


class Line(NamedTuple):
    """A line of output. Styles: ``title``, ``current``, ``stop``, ``watch``, ``error``, ``text`` or none.

    Lines with the style ``error`` or ``text`` are meant to be read in full; others may be cut to the width of a window.
    """

    text: str
    style: str = ""


class RefusedError(Exception):
    """A command that cannot be executed, with the reason on one line."""


@dataclass(frozen=True)
class Command:
    """A command and its usage."""

    name: str
    alias: str
    usage: str
    help: str


COMMANDS = (
    Command("next", "n", "[N]", "execute the next node; a loop, branch, call or scope as a whole"),
    Command("step", "s", "[N]", "execute one node: step into loops, branches, calls and scopes"),
    Command("out", "o", "", "go on to the end of the loop, scope or block around the next node"),
    Command("finish", "f", "", "go on to the end of this step"),
    Command("continue", "c", "", "go on to the next breakpoint, across steps"),
    Command("break", "b", "[WHERE]", f"set a breakpoint, or list them: {PLACES}"),
    Command("delete", "d", "[N]", "delete breakpoint N, or all"),
    Command("watch", "w", "[VAR]", "show a variable or a slice of it at every stop; without VAR, show all watched"),
    Command("unwatch", "u", "[VAR]", "stop watching a variable, or all of them"),
    Command("print", "p", "VAR", "show a variable, a slice (h[0], K[l, 0..3]), a size or a loop index"),
    Command("edit", "e", "VAR = VALUE", "change a volatile variable: e h = 1.5 | e h[0, 1] = 2 | e h = @h.npy"),
    Command("vars", "v", "", "list all variables"),
    Command("where", "", "", "show the step, blocks, loops and scopes around the next node"),
    Command("list", "l", "[LINE]", "show the source; repeat to show more"),
    Command("history", "hi", "[N]", "list the nodes executed last, with their times"),
    Command("steps", "", "[N]", "show how many steps are done and planned, or plan N"),
    Command("restart", "", "", "go back to the first step and to initial persistent memory"),
    Command("run", "r", "", "restart, then continue"),
    Command("help", "h", "[COMMAND]", "show this list, or one command"),
    Command("quit", "q", "", "leave"),
)


def named(word: str) -> Command:
    """The command with this name or letter, or with a name that uniquely starts with it.

    >>> named("cont").name, named("n").name
    ('continue', 'next')
    """
    exact = [one for one in COMMANDS if word in (one.name, one.alias)]
    begun = exact or [one for one in COMMANDS if one.name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        message = f"{word!r} can be {' or '.join(one.name for one in begun)}"
    else:
        advice = nearest(word, [one.name for one in COMMANDS]) or "help lists the commands"
        message = f"there is no command {word!r:.60}; {advice}"
    raise RefusedError(message)


def help_lines(word: str) -> list[Line]:
    """Help for one command, or for all of them."""
    shown = (named(word),) if word else COMMANDS
    heads = [f"{one.name} {one.usage}".strip() for one in shown]
    width = max(map(len, heads))
    lines = [
        Line(f"{one.alias:>2}  {head:<{width}}  {one.help}", "text") for one, head in zip(shown, heads, strict=True)
    ]
    return lines if word else [*lines, Line("An empty line repeats the last command.", "text")]


def error_lines(error: OpenInferError) -> list[Line]:
    """An error with its place and advice, as lines."""
    return [Line(text, "error") for text in str(error).split("\n")]


def positive(argument: str, default: int) -> int:
    """The positive number given to a command."""
    if not argument:
        return default
    if not (argument.isascii() and argument.isdecimal()) or not 0 < int(argument[:12]) <= _MOST:
        message = f"{argument!r:.60} is not a number from 1 to {_MOST}"
        raise RefusedError(message)
    return int(argument[:12])
