"""An extension for Griffe, which reads docstrings for the reference: doctests in them become blocks of code."""

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Doctests(Extension):  # type: ignore[misc,unused-ignore]
    """Put a fence around every run of lines that begins with ``>>>`` and ends with an empty line."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
