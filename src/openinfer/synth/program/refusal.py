"""Why two kernels do not become one: a record with the words of the report. Nothing reads the words back."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why two kernels do not become one.

    >>> Refusal("node {} says fuse = false", (3,)).text
    'node 3 says fuse = false'
    """

    words: str
    """A clause; each ``{}`` in it stands for one of the numbers."""
    numbers: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The clause with its numbers."""
        return self.words.format(*self.numbers)
