"""Work that waits for an instance: a bounded queue, with deadlines and cancellation."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic, perf_counter_ns

from openinfer.check.events import Event
from openinfer.errors import Code, Diagnostic, ServingError
from openinfer.ops import Array
from openinfer.serve.messages import SequencePart

StepOutputs = Mapping[str, Array]
GRACE = 10.0
"""Seconds that steps may still run when a model is unloaded."""


@dataclass
class StepRecord:
    """The history of a job, for the spans of its request. Times are those of ``perf_counter_ns``."""

    wants_nodes: bool = False
    """Whether the step records its nodes."""
    arrived: int = field(default_factory=perf_counter_ns)
    began: int | None = None
    ended: int | None = None
    jobs: int = 1
    """The number of jobs that ran in the same step."""
    events: Sequence[Event] = ()
    dropped_events: int = 0


class Job:
    """A step that a client waits for. Its future gets the outputs or the error."""

    __slots__ = (
        *("arrived", "before_answer", "deadline", "future", "inputs", "interrupt", "is_dropped", "record", "sequence"),
    )

    def __init__(
        self,
        inputs: Mapping[str, Array],
        timeout: float,
        sequence: SequencePart | None = None,
        record: StepRecord | None = None,
    ) -> None:
        self.inputs = inputs
        self.sequence = sequence
        self.record = record
        self.arrived = monotonic()
        self.deadline = self.arrived + timeout
        self.future: Future[StepOutputs] = Future()
        self.is_dropped = False
        self.interrupt: Callable[[], None] | None = None
        """Ends the running step; set only while the step runs this job alone."""
        self.before_answer: Callable[[], None] | None = None
        """Called after the step has run, before its outputs are delivered."""

    @property
    def wants_nodes(self) -> bool:
        """Whether its step records nodes, in which case it is not batched."""
        return self.record is not None and self.record.wants_nodes

    def begin(self, jobs: int = 1) -> None:
        """Note that its step begins, with ``jobs`` jobs in total."""
        if self.record is not None:
            self.record.began, self.record.jobs = perf_counter_ns(), jobs

    def _end(self) -> None:
        if self.record is not None:
            self.record.ended = perf_counter_ns()

    def is_wanted(self) -> bool:
        """Whether a client still waits for the answer; a job past its deadline fails here."""
        if self.is_dropped:
            return False
        if monotonic() >= self.deadline:
            self.fail(deadline_error())
            return False
        return True

    def succeed(self, outputs: StepOutputs) -> None:
        """Deliver the outputs."""
        self._end()
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_result(outputs)

    def fail(self, error: BaseException) -> None:
        """Deliver an error."""
        self._end()
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def drop(self) -> None:
        """Cancel a job whose client no longer waits; if it runs, it ends at the next iteration of a loop."""
        self.is_dropped = True
        self._interrupt()

    def _interrupt(self) -> None:
        """End a running step. A step that is just starting loses earlier interrupts, so repeat until it ends."""
        interrupt = self.interrupt
        if interrupt is not None:
            interrupt()
            again = threading.Timer(0.1, self._interrupt)
            again.daemon = True
            again.start()


def deadline_error() -> ServingError:
    """The error of a request past its deadline."""
    return ServingError(Diagnostic(Code.DEADLINE, "the request was not answered in time", None, "allow more time"))


def queue_full(most: int) -> ServingError:
    """The error of a request that finds the queue full."""
    message = f"{most} requests are waiting already"
    return ServingError(Diagnostic(Code.QUEUE_FULL, message, None, "send it again later"))


def closing() -> ServingError:
    """The error of a request for a model that is being unloaded or replaced."""
    message = "the model is being unloaded or reloaded"
    return ServingError(Diagnostic(Code.QUEUE_FULL, message, None, "send it again later"))


def join_all(threads: Iterable[threading.Thread], seconds: float = GRACE) -> None:
    """Wait for threads, with one timeout for all of them."""
    until = monotonic() + seconds
    for thread in threads:
        thread.join(max(until - monotonic(), 0))


class WorkQueue:
    """A bounded queue of jobs, in order."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job) -> None:
        """Add a job, unless the queue is full or closed."""
        with self._changed:
            if self._is_closed:
                raise closing()
            if len(self._jobs) >= self.most:
                raise queue_full(self.most)
            self._jobs.append(job)
            self._changed.notify()

    def put_back(self, job: Job) -> None:
        """Put a job that may run now at the front, whatever the length of the queue."""
        with self._changed:
            self._jobs.appendleft(job)
            self._changed.notify()

    def remove(self, job: Job) -> None:
        """Remove a job that is no longer wanted, to free its slot."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def take(self) -> Job | None:
        """The next job, wanted or not; None once the queue is closed and empty."""
        with self._changed:
            while not self._jobs and not self._is_closed:
                self._changed.wait()
            return self._jobs.popleft() if self._jobs else None

    def take_more(self, fits: Callable[[Job], bool], until: float) -> Job | None:
        """The first job that fits, waiting for one until a given time."""
        with self._changed:
            while True:
                for job in self._jobs:
                    if fits(job):
                        self._jobs.remove(job)
                        if job.is_wanted():
                            return job
                        break
                else:
                    left = until - monotonic()
                    if left <= 0 or self._is_closed:
                        return None
                    self._changed.wait(left)

    def close(self) -> None:
        """Refuse further jobs; waiting ones still run."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
