"""Turns names of other formats into unique identifiers of the language."""

import re
from collections.abc import Iterable

from openinfer.ir.words import RESERVED

_LONGEST = 60


class Identifiers:
    """Identifiers in use; a new one never collides with them."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*RESERVED, *taken}
        self._last: dict[str, int] = {}

    def unique(self, text: str, fallback: str = "v") -> str:
        """A unique identifier as close to a text as possible.

        >>> names = Identifiers()
        >>> names.unique("past.0/key"), names.unique("past_0_key"), names.unique("387")
        ('past_0_key', 'past_0_key_2', 'v387')
        """
        name = identifier(text, fallback)
        if name not in self._taken:
            self._taken.add(name)
            return name
        number = self._last.get(name, 1)
        made = name
        while made in self._taken:
            number += 1
            made = f"{name}_{number}"
        self._last[name] = number
        self._taken.add(made)
        return made


def identifier(text: str, fallback: str = "v") -> str:
    """A text as an identifier: other characters become underscores, and a leading digit gets a letter in front."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")
    if len(name) > _LONGEST:
        name = name[-_LONGEST:].lstrip("_")
    if not name:
        return fallback
    return name if not name[0].isdigit() else f"{fallback}{name}"
