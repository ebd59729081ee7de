"""Sessions: a graph with persistent memory has one instance per sequence of requests.

Steps of a session run in request order, one at a time; sessions run in parallel. A session leaves memory when it ends,
when it has been idle for a while, or when another one needs the room. If there is a folder for states, it is saved
first and reloaded by its next request, even after a restart of the server.
"""

import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError, ServingError
from openinfer.serve.interface import ModelInterface
from openinfer.serve.messages import SequencePart
from openinfer.serve.options import RunOptions, SessionOptions
from openinfer.serve.pool import NodeTracer, StepModule, run_alone
from openinfer.serve.problems import told
from openinfer.serve.states import StateFolder
from openinfer.serve.watching import ModelWatcher
from openinfer.serve.work import Job, WorkQueue, join_all, queue_full
from openinfer.synth.run.module import CompiledModule
from openinfer.workers import WorkerModule
from openinfer.workers.worker import worker_lost

PATIENCE = 1.0
"""Seconds that a new session waits for a running or saving one to make room."""


@dataclass
class _Session:
    """The instance of one sequence. The holder of the lock owns the module."""

    id: str
    module: StepModule
    lock: threading.Lock = field(default_factory=threading.Lock)
    used: float = field(default_factory=monotonic)
    is_changed: bool = False
    """Whether the module's state is newer than the saved one."""
    is_gone: bool = False
    """Whether it has left memory; its module may then belong to another session."""
    limit: float | None = None
    """When the running step is ended; None if no step runs."""
    is_cut_off: bool = False
    """Whether a step was ended midway, which makes the state useless."""

    @property
    def is_lost(self) -> bool:
        """Whether the process that held its state has ended."""
        return isinstance(self.module, WorkerModule) and self.module.is_lost


class SessionPool:
    """Runs the steps of one model with persistent memory."""

    def __init__(
        self,
        module: StepModule,
        interface: ModelInterface,
        options: RunOptions,
        kept: SessionOptions,
        states: StateFolder | None,
        watcher: ModelWatcher,
        tracer: NodeTracer | None = None,
    ) -> None:
        self.tracer = tracer
        self._first = module
        self._names = tuple(interface.outputs)
        self._idle, self._save_every, self._longest = kept.idle, kept.save_every, options.timeout
        self._states = states
        self._watcher = watcher
        self.most = max(kept.memory // session_bytes(module), 1)
        self._sessions: dict[str, _Session] = {}
        self._lines: dict[str, deque[Job]] = {}
        """The jobs of each sequence in order; the first is queued or running."""
        self._behind = 0
        """The number of jobs that wait for another one of their sequence."""
        self._free: list[StepModule] = [module]
        self._made = 1
        self._lock = threading.Condition()
        """Notified when a session is released."""
        self._ended = threading.Event()
        self.queue = WorkQueue(options.max_queue)
        watcher.sessions(lambda: len(self._sessions))
        self._threads = [
            threading.Thread(target=self._work, name=f"sessions-{number}", daemon=True)
            for number in range(options.instances)
        ]
        self._keeper = threading.Thread(target=self._keep, name="session-keeper", daemon=True)
        for thread in (*self._threads, self._keeper):
            thread.start()

    def submit(self, job: Job) -> None:
        """Queue a step of a session."""
        if job.sequence is None:
            message = "the graph has persistent memory: a request needs a sequence_id"
            advice = 'for one step alone: {"sequence_id": "...", "sequence_start": true, "sequence_end": true}'
            raise ServingError(Diagnostic(Code.BAD_SEQUENCE, message, None, advice))
        if job.sequence.saves and self._states is None:  # refuse before the step changes the state
            message = "the server keeps no states: it has no folder for them"
            raise ServingError(Diagnostic(Code.BAD_SEQUENCE, message, None, "openinfer serve --state-dir DIR"))
        with self._lock:
            line = self._lines.get(job.sequence.id)
            if line is None:
                self.queue.put(job)
                self._lines[job.sequence.id] = deque([job])
            elif self._behind >= self.queue.most:
                raise queue_full(self.queue.most)
            else:
                self._behind += 1
                line.append(job)

    def drop(self, job: Job) -> None:
        """Cancel a job whose client no longer waits. A step that has begun still runs to its end."""
        job.is_dropped = True

    def close(self) -> None:
        """Run all waiting jobs, save changed sessions, then stop."""
        self.queue.close()
        join_all(self._threads)
        self._ended.set()
        self._keeper.join()
        for session in list(self._sessions.values()):
            if session.lock.acquire(blocking=False):  # a session whose step still runs cannot be saved
                if not session.is_lost:
                    self._saved(session)
                session.lock.release()

    # --- running --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self.queue.take()) is not None:
            try:
                if job.is_wanted():
                    self._step(job)
            except OpenInferError as error:
                job.fail(error)
            except MemoryError:
                job.fail(ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, "there is no memory for a session")))
            except Exception as error:  # noqa: BLE001  (an uncaught error would end the thread and lose its instance)
                job.fail(error)
            finally:
                self._next(job)

    def _next(self, job: Job) -> None:
        """Let the next job of the same sequence run."""
        assert job.sequence is not None
        with self._lock:
            line = self._lines[job.sequence.id]
            line.popleft()
            if line:
                self._behind -= 1
                self.queue.put_back(line[0])
            else:
                del self._lines[job.sequence.id]

    def _step(self, job: Job) -> None:
        part = job.sequence
        assert part is not None
        session = self._claim(part)
        try:
            if part.starts:
                session.module.reset()
                self._unsave(session)
            session.is_changed = True
            job.before_answer = partial(self._save, session) if part.saves else None
            self._run(session, job)
            session.used = monotonic()
            if session.is_lost or session.is_cut_off:  # the client has got its error
                with self._lock:
                    self._forget(session)
            elif part.ends:
                self._end(session)
        finally:
            self._release(session)

    def _run(self, session: _Session, job: Job) -> None:
        """Run a step, with a limit so that it can be ended when it takes longer than any request may."""
        session.limit = monotonic() + self._longest
        try:
            if job.wants_nodes and self.tracer is not None and isinstance(session.module, CompiledModule):
                self.tracer.run(job, self._names, session.module)
            else:
                run_alone(session.module, job, self._names)
        finally:
            with self._lock:
                session.limit = None

    def _cut_off(self, session: _Session) -> None:
        """End a step that has exceeded its limit, at the next iteration of a loop."""
        with self._lock:
            if session.limit is not None and monotonic() >= session.limit:
                session.is_cut_off = True
                session.module.interrupt()

    def _release(self, session: _Session) -> None:
        session.lock.release()
        with self._lock:
            self._lock.notify_all()

    def _claim(self, part: SequencePart) -> _Session:
        """The session of a request, locked."""
        while True:
            with self._lock:
                session = self._sessions.get(part.id) or self._opened(part.id, starts=part.starts)
            session.lock.acquire()
            if not session.is_gone and (part.starts or not session.is_lost):
                return session
            try:
                self._require_saved(session)
            finally:
                self._release(session)

    def _require_saved(self, session: _Session) -> None:
        """Forget a session whose process has ended; an error if unsaved changes were lost with it."""
        if session.is_gone:
            return
        with self._lock:
            self._forget(session)
        if session.is_changed:
            raise worker_lost(None)

    def _opened(self, name: str, *, starts: bool) -> _Session:
        """Open a session that is not in memory: a new or a saved one."""
        saved = None if starts or self._states is None else self._states.found(name)
        if not starts and saved is None:
            message = f"there is no sequence {name[:80]!r}: it has ended, was idle for too long, or has not begun"
            raise ServingError(Diagnostic(Code.BAD_SEQUENCE, message, None, "begin it with sequence_start"))
        module = self._module()
        try:
            if saved is not None:
                module.load_state(saved)
        except OpenInferError as error:
            self._free.append(module)
            message = f"the saved state of the sequence {name[:80]!r} cannot be read ({error.code})"
            raise ServingError(Diagnostic(Code.BAD_SEQUENCE, message, None, "begin it with sequence_start")) from error
        session = self._sessions[name] = _Session(name, module)
        return session

    def _module(self) -> StepModule:
        """An unused instance: a free one, a new one, or that of the least recently used session."""
        if not self._free and self._made < self.most:
            self._free.append(self._first.another())
            self._made += 1
        if not self._lock.wait_for(self._has_room, PATIENCE if self._states is not None else 0):
            message = f"{self.most} sessions are open, and there is no memory for more"
            raise ServingError(Diagnostic(Code.QUEUE_FULL, message, None, "end one with sequence_end, or retry later"))
        return self._free.pop()

    def _has_room(self) -> bool:
        """Whether there is a free instance; if not, evict the least recently used idle session that can be saved."""
        if not self._free and self._states is not None:
            for one in sorted(self._sessions.values(), key=lambda one: one.used):
                if not self._free and one.lock.acquire(blocking=False):
                    if one.is_lost or self._saved(one):
                        self._forget(one)
                    one.lock.release()
        return bool(self._free)

    def _forget(self, session: _Session) -> None:
        """Remove a session from memory; the caller holds its lock."""
        session.is_gone = True
        del self._sessions[session.id]
        self._free.append(session.module)

    def _end(self, session: _Session) -> None:
        with self._lock:
            self._forget(session)
        self._unsave(session)

    # --- saving ---------------------------------------------------------------------------------------------------

    def _save(self, session: _Session) -> None:
        assert self._states is not None
        self._states.save(session.id, session.module)
        session.is_changed = False

    def _unsave(self, session: _Session) -> None:
        """Delete the saved state of this id, whose sequence is over."""
        if self._states is not None:
            self._states.remove(session.id)

    def _saved(self, session: _Session) -> bool:
        """Save the state of an idle session if it has changed; False if it is not on disk and must stay in memory."""
        if self._states is None:
            return False
        if not session.is_changed:
            return True
        try:
            self._save(session)
        except OpenInferError as error:
            self._watcher.not_saved(told(error))
            return False
        return True

    def _keep(self) -> None:
        """Periodically save changed sessions, forget those idle for too long, and delete states that are too old."""
        while not self._ended.wait(min(self._save_every, max(self._idle / 4, 0.05), max(self._longest, 0.05))):
            for session in list(self._sessions.values()):
                self._cut_off(session)
                self._maintain(session)
            if self._states is not None:
                self._states.remove_old()

    def _maintain(self, session: _Session) -> None:
        if not session.lock.acquire(blocking=False):
            return
        try:
            if session.is_gone:
                return
            is_saved = session.is_lost or self._saved(session)
            with self._lock:
                is_idle = monotonic() - session.used > self._idle and session.id not in self._lines
                if is_idle and (is_saved or self._states is None):
                    self._forget(session)
        finally:
            self._release(session)


def session_bytes(module: StepModule) -> int:
    """The memory of a session: its state and the working memory of a step. Growing tables need more."""
    return max(module.memory_bytes, 1)
