"""How a step of compiled code is interrupted: by a signal, or by a call from another thread.

While compiled code runs, the interpreter does not: a signal only leaves a mark. So the code asks now and then whether
to go on, and the interpreter gets the chance to run the handlers of signals that have come.
"""

import ctypes
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType

_Asked = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Watch:
    """What compiled code asks, and what came of it."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether the step is to end."""
        self.raised: BaseException | None = None
        """What a signal's handler has raised while the code was running."""
        answers = _answers(self)
        next(answers)
        self.callback = _Asked(answers.send)


def _answers(watch: Watch) -> Generator[int, object, None]:
    """1 to end the step, 0 to go on.

    The interpreter runs handlers when it begins to run a function, before any ``try`` in it, and ctypes would print
    and forget what they raise. A generator goes on inside its ``try``.
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
    """Ctrl-C waits until the code has returned, and asks it to.

    For code that calls Python functions all the time: where one of these happens to run, the handler's exception would
    be lost.
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
