"""Making many objects at once without the garbage collector looking at them all the time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Nothing that reading a file or a graph makes is garbage until it ends; searching it meanwhile costs much time.

    >>> with collection_paused():
    ...     gc.isenabled()
    False
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
