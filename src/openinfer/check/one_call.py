"""One call at a time: what an executor and a compiled module let into themselves."""

import threading

from openinfer.errors import Code, Diagnostic, ExecutionError


class OneCall:
    """The calls of an object. A second one, from another thread or from inside the first, is refused.

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
        """Whether a call is running now."""
        return self._lock.locked()

    def claim(self) -> threading.Lock:
        """For a ``with`` statement around a call.

        The lock itself is handed out, because only the interpreter's own locks are taken and given back without a gap
        for an interruption. Two calls that begin in the same instant can both get here; one of them then waits.
        """
        if self._lock.locked():
            message = f"the {self._what} is running another call"
            advice = f"make one call at a time: give every thread its own {self._what}, or put a lock around the calls"
            raise ExecutionError(Diagnostic(Code.BUSY, message, None, advice))
        return self._lock
