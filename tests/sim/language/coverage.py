"""draft"""
from collections.abc import Callable
from typing import TypeVar
Test = TypeVar("Test", bound=Callable[..., None])
def sentence(*ids: str) -> Callable[[Test], Test]:
    def mark(test: Test) -> Test:
        test.sentences = ids
        return test
    return mark
