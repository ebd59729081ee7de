"""Whether tests look at everything, or in the normal run at what shows each kind of mistake."""

import os
from collections.abc import Iterable
from typing import TypeVar

HAS_EVERYTHING = os.environ.get("OPENINFER_TEST_CHECKS") == "all"
_One = TypeVar("_One")


def some(cases: Iterable[_One], stride: int) -> list[_One]:
    """All cases; in the normal run each ``stride``-th."""
    return [*cases] if HAS_EVERYTHING else [*cases][::stride]
