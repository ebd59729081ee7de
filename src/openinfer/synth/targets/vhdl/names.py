"""Names and comments in VHDL. Those of the graph reach comments, escaped, and identifiers only as plain letters."""

import re
import textwrap

from openinfer.synth.targets.cstyle.names import comment

_WIDTH = 112


def plain(text: str, longest: int = 40) -> str:
    """Letters, digits and single underscores, so that an identifier can begin or end with them.

    >>> plain("Q__k é-v2_"), plain("3d")
    ('q_k_v2', 'n3d')
    """
    kept = re.sub(r"[^a-z0-9]+", "_", text.lower())[:longest].strip("_")
    return kept if kept[:1].isalpha() else f"n{kept}"


def remark(text: str) -> list[str]:
    r"""A text as lines of comments, which nothing in it can end.

    >>> remark("a\nb; end entity")
    ['-- a\\nb; end entity']
    """
    return [f"-- {line}" for line in textwrap.wrap(comment(text), _WIDTH)]
