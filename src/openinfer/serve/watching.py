"""Monitoring of a server: metrics per model, and a log of JSON lines."""

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_JOBS = (1, 2, 4, 8, 16, 32, 64, 128)
_REPEATS = 60.0
"""Seconds before the log repeats a message of another package."""


class Metrics:
    """The metrics of a server, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("model", "version")
        self.requests = Counter(
            "openinfer_requests",
            "Requests that were answered, by the code of their error, 'ok' without one.",
            (*labels, "protocol", "code"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "openinfer_request_seconds",
            "From a request to its answer, without the network.",
            labels,
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "openinfer_batch_requests", "Requests in a step.", labels, buckets=_JOBS, registry=self.registry
        )
        self.waiting = Gauge("openinfer_waiting_requests", "Requests in the queue.", labels, registry=self.registry)
        self.sessions = Gauge("openinfer_sessions", "Sessions in memory.", labels, registry=self.registry)
        self.unsaved = Counter(
            "openinfer_session_save_failures", "States that could not be saved.", labels, registry=self.registry
        )
        self.losses = Counter(
            "openinfer_worker_losses", "Processes of instances that have ended.", labels, registry=self.registry
        )
        self.tokens = Counter(
            "openinfer_tokens", "Tokens of texts, read or generated.", (*labels, "kind"), registry=self.registry
        )


class ModelWatcher:
    """Collects metrics and log lines of one model."""

    def __init__(self, metrics: Metrics, log: "EventLog", model: str, version: str) -> None:
        self._metrics, self._log = metrics, log
        self._labels = (model, version)

    def batch(self, jobs: int) -> None:
        """Note that a step begins for ``jobs`` requests."""
        self._metrics.batches.labels(*self._labels).observe(jobs)

    def waiting(self, count: Callable[[], float]) -> None:
        """Set the function that returns the length of the queue."""
        self._metrics.waiting.labels(*self._labels).set_function(count)

    def sessions(self, count: Callable[[], float]) -> None:
        """Set the function that returns the number of sessions."""
        self._metrics.sessions.labels(*self._labels).set_function(count)

    def forget(self) -> None:
        """Remove the gauges of an unloaded model, and with them the references that they hold."""
        for gauge in (self._metrics.waiting, self._metrics.sessions):
            with suppress(KeyError):  # a model without sessions has no such gauge
                gauge.remove(*self._labels)

    def not_saved(self, reason: str) -> None:
        """Note that a state could not be saved."""
        self._metrics.unsaved.labels(*self._labels).inc()
        self.log("state not saved", logging.WARNING, {"reason": reason})

    def worker_lost(self, pid: int) -> None:
        """Note that an instance's process has ended."""
        self._metrics.losses.labels(*self._labels).inc()
        self.log("worker lost", logging.WARNING, {"pid": pid})

    def tokens(self, kind: str, count: int) -> None:
        """Count tokens read or generated."""
        self._metrics.tokens.labels(*self._labels, kind).inc(count)

    def answered(
        self, protocol: str, code: str, seconds: float, request_id: str = "", trace_id: str | None = None
    ) -> None:
        """Note that a request has been answered."""
        self._metrics.requests.labels(*self._labels, protocol, code).inc()
        self._metrics.seconds.labels(*self._labels).observe(seconds)
        facts = {"protocol": protocol, "code": code, "ms": round(seconds * 1e3, 3), "id": request_id}
        facts |= {} if trace_id is None else {"trace_id": trace_id}
        self.log("request", logging.DEBUG if code == "ok" else logging.INFO, facts)

    def log(self, event: str, level: int = logging.INFO, facts: Mapping[str, Any] | None = None) -> None:
        """Write a log line about this model."""
        self._log.write(event, level, {"model": self._labels[0], "version": self._labels[1], **(facts or {})})


class EventLog:
    """A log of JSON lines, each with a time, a level and an event."""

    def __init__(self, stream: TextIO | None = None, level: int = logging.INFO) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._level = level
        self._lock = threading.Lock()

    def write(self, event: str, level: int = logging.INFO, facts: Mapping[str, Any] | None = None) -> None:
        """Write a line if its level is enabled. Write errors of the log are ignored."""
        if level < self._level:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": logging.getLevelName(level).lower(), "event": event, **(facts or {})}
        text = json.dumps(line, ensure_ascii=True, default=str)
        with self._lock:
            try:
                self._stream.write(f"{text}\n")
                self._stream.flush()
            except (OSError, ValueError):
                return


class _LogLines(logging.Handler):
    """Forwards another package's messages to the server's log, each at most once a minute."""

    def __init__(self, log: EventLog, event: str) -> None:
        super().__init__(logging.WARNING)
        self._log, self._event = log, event
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless the message was logged recently."""
        text = str(record.msg)
        if monotonic() - self._said.get(text, -_REPEATS) >= _REPEATS:
            self._said[text] = monotonic()
            facts = {"message": record.getMessage().strip()[:500]}
            facts |= {} if record.exc_info is None else {"error": repr(record.exc_info[1])[:500]}
            self._log.write(self._event, record.levelno, facts)


def lines_of(logger: str, log: EventLog, event: str) -> None:
    """Redirect a package's logger to a log."""
    found = logging.getLogger(logger)
    found.handlers = [_LogLines(log, event)]
    found.propagate = False
