"""An ``os`` module that counts the calls a writer makes, and can fail, shorten or record any of them."""

import os
from collections.abc import Callable, Sequence
from typing import Any

WATCHED = ("open", "write", "fsync", "close", "rename")


class FaultyOs:
    """Stands in for ``os``. ``fail_at`` is the number of the watched call (from 0) that raises ``error``."""

    def __init__(
        self,
        fail_at: int | None = None,
        error: int = 0,
        most_written: int | None = None,
        watched: Sequence[str] = WATCHED,
    ) -> None:
        self.calls: list[str] = []
        self._fail_at = fail_at
        self._error = error
        self._most_written = most_written
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._watch(name, real) if name in self._watched else real

    def _watch(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(self._label(name, arguments))
            if len(self.calls) - 1 == self._fail_at:
                if name == "close":
                    real(*arguments)
                raise OSError(self._error, os.strerror(self._error))
            if name == "write" and self._most_written is not None:
                return real(arguments[0], arguments[1][: self._most_written])
            return real(*arguments, **options)

        return call

    @staticmethod
    def _label(name: str, arguments: tuple[Any, ...]) -> str:
        """The call and what it is about: the folder, the temporary file, or a change of names."""
        if name not in ("open", "write", "fsync", "close"):
            return name
        path = arguments[0] if name == "open" else os.readlink(f"/proc/self/fd/{arguments[0]}")
        return f"{name} {'folder' if os.path.isdir(path) else 'file'}"
