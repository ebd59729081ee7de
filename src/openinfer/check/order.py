"""Names in the order of what they depend on."""

from collections.abc import Callable, Iterable, Iterator


def after_needs(every: Iterable[str], needs: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """Names, each after those it needs; they do not need each other in cycles.

    A stack of our own: a chain can be longer than Python likes.

    >>> needs = {"a": ["b", "c"], "b": ["c"], "c": []}
    >>> list(after_needs(needs, needs.__getitem__))
    ['c', 'b', 'a']
    """
    done: set[str] = set()
    for first in every:
        stack = [first]
        while stack:
            name = stack[-1]
            waiting = [] if name in done else [other for other in dict.fromkeys(needs(name)) if other not in done]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if name not in done:
                done.add(name)
                yield name
