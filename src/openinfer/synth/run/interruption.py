"""Interrupts steps of compiled code: by a signal, or by a call from another thread.

The interpreter does not run while compiled code does: a signal only sets a flag. The code therefore polls now and then
whether to go on, which lets the interpreter run the handlers of pending signals.
"""

import ctypes
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType

_Asked = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Watch:
    """The callback that compiled code polls, and its outcome."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether the step should end."""
        self.raised: BaseException | None = None
        """The exception that a signal handler raised while the code was running."""
        answers = _answers(self)
        next(answers)
        self.callback = _Asked(answers.send)

    def reraise(self) -> None:
        """Raise the exception of a signal handler, if there is one: it is why the code has ended."""
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised


def _answers(watch: Watch) -> Generator[int, object, None]:
    """Yields 1 to end the step, 0 to go on.

    The interpreter runs handlers on entry to a function, before any ``try`` in it, and ctypes would print and drop what
    they raise. A generator resumes inside its ``try``.
    """
    answer = 0
    while True:
        try:
            while True:
                yield answer
                answer = int(watch.is_wanted)
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001  (raised again when the code has returned)
            watch.raised, answer = error, 1


@contextmanager
def deferred_interrupt(watch: Watch) -> Iterator[None]:
    """Defers Ctrl-C until the code has returned, and asks the code to end.

    For code that calls Python functions all the time: the handler's exception would be lost if it ran in one of these.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    frames: list[FrameType | None] = []

    def note(_number: int, frame: FrameType | None) -> None:
        frames.append(frame)
        watch.is_wanted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if frames:
            handler(signal.SIGINT, frames[0])
