"""A run over files: split into parts that are each read, computed and written as a whole, in any order by any worker.

Parts are written atomically, so a killed run resumes where it stopped. A manifest in the output folder identifies the
run, so that other runs do not mix their files into it.
"""

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from openinfer.errors import BatchError, Code, Diagnostic, FileSpan, OpenInferError, nearest
from openinfer.oinf.atomic import atomic_file
from openinfer.scale.columns import column_of, rows_of
from openinfer.scale.predictor import Predictor

_MANIFEST = "run.json"
_LOCK = ".lock"
_PART_ROWS = 65_536


@dataclass(frozen=True)
class BatchRun:
    """The graph, the input files, and where results go."""

    graph: str
    inputs: tuple[str, ...]
    output: str
    model: str | None = None
    device: str = "host"
    sizes: dict[str, int] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    """Columns of inputs whose names differ."""
    keep: tuple[str, ...] = ()
    """Columns that are copied to the output."""
    part_rows: int = _PART_ROWS
    """Row groups of a file are combined into parts of up to this many rows."""

    def predictor(self, threads: int = 1) -> Predictor:
        """The graph, compiled for this machine."""
        return Predictor(
            self.graph, self.model, device=self.device, sizes=self.sizes, columns=self.columns, threads=threads
        )


@dataclass(frozen=True)
class BatchPart:
    """Row groups of a file that are processed together."""

    index: int
    file: str
    groups: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class BatchReport:
    """The result of a run."""

    parts: int
    rows: int
    done_before: int
    """Parts already written by an earlier run."""


def planned_parts(run: BatchRun) -> list[BatchPart]:
    """The parts of a run; deterministic for given files."""
    found: list[BatchPart] = []
    for path in run.inputs:
        metadata = _opened(path).metadata
        groups: list[int] = []
        rows = 0
        for group in range(metadata.num_row_groups):
            size = metadata.row_group(group).num_rows
            if groups and rows + size > run.part_rows:
                found.append(BatchPart(len(found), path, tuple(groups), rows))
                groups, rows = [], 0
            groups.append(group)
            rows += size
        if groups:
            found.append(BatchPart(len(found), path, tuple(groups), rows))
    return found


def planned(run: BatchRun) -> tuple[Predictor, list[BatchPart]]:
    """The predictor and the parts of a run; an error if the output would have two columns of one name."""
    predictor = run.predictor()
    both = [name for name in run.keep if name in predictor.outputs]
    if both:
        message = f"the column {both[0]!r} cannot be kept: an output has its name"
        raise BatchError(Diagnostic(Code.BAD_BATCH, message, None, "rename the column, or the output in the graph"))
    return predictor, planned_parts(run)


def _opened(path: str) -> Any:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        message = f"{path!r} cannot be read as Parquet: {str(error)[:200]}"
        raise BatchError(Diagnostic(Code.BAD_BATCH, message, FileSpan(path))) from error


def part_path(run: BatchRun, part: BatchPart) -> Path:
    """The file that a part is written to."""
    return Path(run.output) / f"part-{part.index:06d}.parquet"


def run_part(run: BatchRun, predictor: Predictor, part: BatchPart) -> int:
    """Read, compute and write a part; returns its number of rows."""
    file = _opened(part.file)
    wanted = [*predictor.inputs.values(), *run.keep]
    known = file.schema_arrow.names
    for column in wanted:
        if known.count(column) > 1:
            message = f"there are {known.count(column)} columns {column!r} in {part.file!r}"
            raise BatchError(Diagnostic(Code.BAD_BATCH, message, FileSpan(part.file), "give each a name of its own"))
        if column not in known:
            advice = nearest(column, known) or f"{part.file} has {', '.join(known[:20])}"
            message = f"there is no column {column!r} in {part.file!r}"
            raise BatchError(Diagnostic(Code.BAD_BATCH, message, FileSpan(part.file), advice))
    try:
        table = file.read_row_groups(list(part.groups), columns=list(dict.fromkeys(wanted)))
    except (OSError, pa.ArrowException) as error:
        message = f"{part.file!r} cannot be read: {str(error)[:200]}"
        raise BatchError(Diagnostic(Code.BAD_BATCH, message, FileSpan(part.file))) from error
    try:
        columns = {name: table[name] for name in run.keep} | _computed(predictor, table)
    except OpenInferError as error:
        raise _located(error, part) from error
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    with atomic_file(str(part_path(run, part))) as target:
        target.write(sink.getvalue())
    return part.rows


def _located(error: OpenInferError, part: BatchPart) -> BatchError:
    """Add the location of a part to an error in its rows."""
    groups = f"row groups {part.groups[0]} to {part.groups[-1]} of " if len(part.groups) > 1 else ""
    note = f"in {groups}{part.file}" if groups else f"in row group {part.groups[0]} of {part.file}"
    return BatchError(
        *(replace(one, span=one.span or FileSpan(part.file), notes=(*one.notes, note)) for one in error.diagnostics)
    )


def _computed(predictor: Predictor, table: Any) -> dict[str, Any]:
    given = {
        name: rows_of(column, table[column], predictor.row_shape(name)) for name, column in predictor.inputs.items()
    }
    found = predictor.rows(given)
    names = predictor.outputs
    return {name: column_of(found[name], predictor.dtype(name), predictor.row_shape(name)) for name in names}


# --- the output folder ------------------------------------------------------------------------------------------------


def _manifest(run: BatchRun, predictor: Predictor, parts: list[BatchPart]) -> str:
    facts = {
        "schema": "openinfer.batch",
        "version": 1,
        "graph_sha256": predictor.identity[0],
        "model_sha256": predictor.identity[1],
        "sizes": dict(predictor.identity[2]),
        "device": run.device,
        "columns": predictor.inputs,
        "keep": list(run.keep),
        "inputs": [
            {"file": path, "bytes": os.stat(path).st_size, "time": os.stat(path).st_mtime_ns} for path in run.inputs
        ],
        "parts": [asdict(part) for part in parts],
    }
    return json.dumps(facts, indent=1, default=list) + "\n"


@contextmanager
def claimed_folder(run: BatchRun, predictor: Predictor, parts: list[BatchPart]) -> Iterator[list[BatchPart]]:
    """Lock the output folder against other runs; yields the parts that are still missing."""
    folder = Path(run.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        message = f"results cannot be written to {run.output!r}: {error.strerror or error}"
        raise BatchError(Diagnostic(Code.WRITE_FAILED, message, FileSpan(run.output))) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _refused(run, "another run is writing there") from error
        _require_own(run, folder, _manifest(run, predictor, parts))
        for left in folder.glob(".oinf-*.tmp"):  # leftovers of a killed run
            with suppress(OSError):
                left.unlink()
        yield [part for part in parts if not part_path(run, part).exists()]
    finally:
        os.close(lock)


def _require_own(run: BatchRun, folder: Path, manifest: str) -> None:
    path = folder / _MANIFEST
    try:
        found = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise _refused(run, f"{_MANIFEST} cannot be read ({error.strerror or error})") from error
    if found == manifest:
        return
    if any(folder.glob("part-*.parquet")):
        known = "it has results of another graph, model, device, option or input"
        raise _refused(run, "it has results of an unknown run" if found is None else known)
    with atomic_file(str(path)) as sink:
        sink.write(manifest.encode())


def _refused(run: BatchRun, reason: str) -> BatchError:
    message = f"the folder {run.output!r} is not this run's: {reason}"
    return BatchError(Diagnostic(Code.BAD_BATCH, message, FileSpan(run.output), "choose another --output"))


# --- local runs -------------------------------------------------------------------------------------------------------


def run_local(
    run: BatchRun,
    instances: int | None = None,
    after_part: Callable[[int, int], None] = lambda _done, _total: None,
) -> BatchReport:
    """Run over all files on the cores of this machine, in one process.

    ``after_part`` is called with the number of finished rows and their total.
    """
    predictor, parts = planned(run)
    with claimed_folder(run, predictor, parts) as left:
        count = min(len(os.sched_getaffinity(0)) if instances is None else instances, max(len(left), 1))
        total = sum(part.rows for part in parts)
        work = _Work(run, left, total - sum(part.rows for part in left), total, after_part)
        others = [threading.Thread(target=work.go, args=(predictor.another(),)) for _ in range(count - 1)]
        for thread in others:
            thread.start()
        try:
            work.go(predictor)
        finally:
            work.end()
            for thread in others:
                thread.join()
        if work.failed:
            raise work.failed[0]
        return BatchReport(len(parts), total, len(parts) - len(left))


class _Work:
    """Hands parts to threads; the first error stops all of them."""

    def __init__(
        self, run: BatchRun, parts: list[BatchPart], done: int, total: int, after_part: Callable[[int, int], None]
    ) -> None:
        self._run, self._parts = run, iter(parts)
        self._done, self._total, self._after_part = done, total, after_part
        self._lock = threading.Lock()
        self._is_over = False
        self.failed: list[Exception] = []
        after_part(done, total)

    def go(self, predictor: Predictor) -> None:
        """Process parts until none are left."""
        while (part := self._next()) is not None:
            try:
                rows = run_part(self._run, predictor, part)
            except Exception as error:  # noqa: BLE001  (``run_local`` raises it again)
                self.failed.append(error)
                self.end()
                return
            with self._lock:
                self._done += rows
                self._after_part(self._done, self._total)

    def end(self) -> None:
        """Hand out no more parts."""
        self._is_over = True

    def _next(self) -> BatchPart | None:
        with self._lock:
            return None if self._is_over else next(self._parts, None)
