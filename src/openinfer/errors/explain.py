"""The long explanation of a code, as printed by ``openinfer explain``."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from openinfer.errors.codes import Code

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Explanation:
    """The meaning of a code, with one example that causes it and one that does not."""

    code: Code
    title: str
    markdown: str
    wrong: str
    right: str


@cache
def explanation(code: Code) -> Explanation:
    """Read the explanation of one code.

    >>> explanation(Code.BAD_MAGIC).title
    'the file is not an .oinf model'
    """
    markdown = (files("openinfer.errors") / "explanations" / f"{code}.md").read_text(encoding="utf-8")
    title = markdown.splitlines()[0].removeprefix(f"# {code}: ")
    wrong, right = (match.group(2) for match in _FENCE.finditer(markdown))
    return Explanation(code, title, markdown, wrong, right)
