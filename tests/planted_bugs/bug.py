"""A known bug, and the tests that must notice it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One text replaced in one file, and the tests (a file and a ``-k`` expression) that must notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    expression: str
