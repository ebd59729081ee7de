"""Finds outputs of a draft by patterns of their names, and removes outputs."""

import re
from collections.abc import Sequence
from dataclasses import replace

from openinfer.errors import nearest
from openinfer.importing.draft import Draft, Port
from openinfer.importing.problems import bad_option


def matching_outputs(draft: Draft, pattern: str) -> list[tuple[Port, tuple[str, ...]]]:
    """The outputs whose names match a pattern, each with the texts that ``*`` matched; at least one."""
    fits = re.compile("(.*?)".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    found = [(port, match.groups()) for port in draft.outputs if (match := fits.fullmatch(port.name))]
    if not found:
        names = [port.name for port in draft.outputs]
        advice = nearest(pattern, names) or f"its outputs are {', '.join(names[:20])}"
        raise bad_option(f"the model has no output {pattern!r:.100}", advice)
    return found


def without_outputs(draft: Draft, patterns: Sequence[str]) -> Draft:
    """The draft without the outputs whose names match a pattern; what only they need becomes dead."""
    dropped = {id(port) for pattern in patterns for port, _ in matching_outputs(draft, pattern)}
    kept = tuple(port for port in draft.outputs if id(port) not in dropped)
    if patterns and not kept:
        raise bad_option("no output would be left", "keep at least one")
    return replace(draft, outputs=kept)
