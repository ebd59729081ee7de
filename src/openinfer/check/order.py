"""Topological order of names."""

from collections.abc import Callable, Iterable, Iterator


def after_needs(every: Iterable[str], needs: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """Names in dependency order: each after those it needs. There must be no cycles.

    Not recursive: a chain may exceed Python's limit.

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
