"""Guards executors and compiled modules, which run one call at a time."""

import threading

from openinfer.errors import Code, Diagnostic, ExecutionError


class OneCall:
    """Guards the calls of an object: a second call, from another thread or from inside the first, is refused.

    >>> calls = OneCall("module")
    >>> with calls.claim():
    ...     calls.is_running
    True
    >>> calls.is_running
    False
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether a call is running."""
        return self._lock.locked()

    def claim(self) -> threading.Lock:
        """Claim the object for a call, in a ``with`` statement.

        Returns the lock itself, because only the interpreter's own locks are acquired and released without a gap for
        interrupts. Two calls that start at the same instant can both get here; one of them then waits.
        """
        if self._lock.locked():
            message = f"the {self._what} is running another call"
            advice = f"make one call at a time: give every thread its own {self._what}, or put a lock around the calls"
            raise ExecutionError(Diagnostic(Code.BUSY, message, None, advice))
        return self._lock
