"""Why two kernels are not fused: a record with the wording of the report. Nothing parses the words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why two kernels are not fused.

    >>> Refusal("node {} says fuse = false", (3,)).text
    'node 3 says fuse = false'
    """

    words: str
    """A clause with a ``{}`` for each number."""
    numbers: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The clause with its numbers filled in."""
        return self.words.format(*self.numbers)
