"""What a server says about itself: metrics of each model, and lines of JSON for a log."""

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
"""Seconds until the log repeats what another package has said."""


class Metrics:
    """The metrics of a server, in a registry of their own."""

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
            "openinfer_tokens", "Tokens of texts, read or said.", (*labels, "kind"), registry=self.registry
        )


class ModelWatcher:
    """What the parts of one model tell the server."""

    def __init__(self, metrics: Metrics, log: "EventLog", model: str, version: str) -> None:
        self._metrics, self._log = metrics, log
        self._labels = (model, version)

    def batch(self, jobs: int) -> None:
        """A step begins for a number of requests."""
        self._metrics.batches.labels(*self._labels).observe(jobs)

    def waiting(self, count: Callable[[], float]) -> None:
        """Where to look for the length of the queue."""
        self._metrics.waiting.labels(*self._labels).set_function(count)

    def sessions(self, count: Callable[[], float]) -> None:
        """Where to look for the number of sessions."""
        self._metrics.sessions.labels(*self._labels).set_function(count)

    def forget(self) -> None:
        """The model is unloaded: nothing is to be looked at any more, nor kept for that."""
        for gauge in (self._metrics.waiting, self._metrics.sessions):
            with suppress(KeyError):  # one that has no sessions never had the gauge
                gauge.remove(*self._labels)

    def not_saved(self, reason: str) -> None:
        """A state could not be saved."""
        self._metrics.unsaved.labels(*self._labels).inc()
        self.log("state not saved", logging.WARNING, {"reason": reason})

    def worker_lost(self, pid: int) -> None:
        """A process of an instance has ended."""
        self._metrics.losses.labels(*self._labels).inc()
        self.log("worker lost", logging.WARNING, {"pid": pid})

    def tokens(self, kind: str, count: int) -> None:
        """Tokens were read or said."""
        self._metrics.tokens.labels(*self._labels, kind).inc(count)

    def answered(
        self, protocol: str, code: str, seconds: float, request_id: str = "", trace_id: str | None = None
    ) -> None:
        """A request has its answer."""
        self._metrics.requests.labels(*self._labels, protocol, code).inc()
        self._metrics.seconds.labels(*self._labels).observe(seconds)
        facts = {"protocol": protocol, "code": code, "ms": round(seconds * 1e3, 3), "id": request_id}
        facts |= {} if trace_id is None else {"trace_id": trace_id}
        self.log("request", logging.DEBUG if code == "ok" else logging.INFO, facts)

    def log(self, event: str, level: int = logging.INFO, facts: Mapping[str, Any] | None = None) -> None:
        """A line about this model."""
        self._log.write(event, level, {"model": self._labels[0], "version": self._labels[1], **(facts or {})})


class EventLog:
    """Lines of JSON, each with a time, a level and what happened."""

    def __init__(self, stream: TextIO | None = None, level: int = logging.INFO) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._level = level
        self._lock = threading.Lock()

    def write(self, event: str, level: int = logging.INFO, facts: Mapping[str, Any] | None = None) -> None:
        """A line, if its level is wanted. A log that cannot be written stops nothing."""
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
    """What another package has to say as lines of the server's log, the same thing once a minute."""

    def __init__(self, log: EventLog, event: str) -> None:
        super().__init__(logging.WARNING)
        self._log, self._event = log, event
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """A line."""
        text = str(record.msg)
        if monotonic() - self._said.get(text, -_REPEATS) >= _REPEATS:
            self._said[text] = monotonic()
            facts = {"message": record.getMessage().strip()[:500]}
            facts |= {} if record.exc_info is None else {"error": repr(record.exc_info[1])[:500]}
            self._log.write(self._event, record.levelno, facts)


def lines_of(logger: str, log: EventLog, event: str) -> None:
    """Have a log say what a package tells its logger."""
    found = logging.getLogger(logger)
    found.handlers = [_LogLines(log, event)]
    found.propagate = False
