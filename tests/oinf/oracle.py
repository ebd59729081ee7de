"""The judge of mutants: success or a typed, located error; nothing else, not slowly, not with much memory.

A file that is accepted must say to the reader what it says to the independent layout model, and must be written again
as that model writes it; and the independent check of well-formedness must have come to the same verdict.
"""

import json
import os
import signal
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from types import FrameType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from tests.oinf.layout_model import NAME_OF_TAG, Document, read_document
from tests.oinf.mutants import Mutant
from tests.oinf.well_formed import flaw, good_elements

from openinfer import Code, ModelLoader, OinfError
from openinfer.oinf.writer import package_of

MAX_SECONDS = 0.1
MAX_GROWTH_BEYOND_TWICE_THE_FILE = 32 << 20
HANG_SECONDS = 10
PAGE = 4096


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder in memory where the machine has one: thousands of files are written into it."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="oinf-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


class HangError(BaseException):
    """A mutant kept the reader busy for seconds; not an ``Exception``, so that nothing swallows it."""


@dataclass
class Figures:
    """What was judged, and the extremes seen."""

    mutants: int = 0
    truncations: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refused_at_load: int = 0
    slowest_ms: float = 0.0
    peak_growth: int = 0

    def add(self, other: "Figures") -> None:
        """Count the figures of another part of the same run."""
        self.mutants += other.mutants
        self.truncations += other.truncations
        self.accepted += other.accepted
        self.refused += other.refused
        self.refused_at_load += other.refused_at_load
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.peak_growth = max(self.peak_growth, other.peak_growth)

    def to_json(self) -> str:
        """The figures as text, to pass between processes."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The figures back from text."""
        values = json.loads(text)
        return cls(**{**values, "refused": Counter(values["refused"])})

    def table(self) -> list[str]:
        """The figures for people."""
        codes = ", ".join(f"{code} {count}" for code, count in sorted(self.refused.items()))
        return [
            f"mutants          {self.mutants}",
            f"truncations      {self.truncations}",
            f"accepted         {self.accepted} (of which {self.refused_at_load} with a tensor refused at load)",
            f"refused          {self.refused.total()} ({codes})",
            f"slowest          {self.slowest_ms:.2f} ms",
            f"peak growth      {self.peak_growth / 1024:.0f} KiB",
        ]


@dataclass
class _Refused:
    error: OinfError


@dataclass
class _Accepted:
    model: ModelLoader
    stored: dict[str, npt.NDArray[np.uint8]]
    bad_data: set[str]
    rewritten: bytes | None


class Judge:
    """Judges mutants in a folder of its own. Use as a context manager; raises ``AssertionError`` on a finding."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mutant.oinf"
        self._again = folder / "again.oinf"
        self.figures = Figures()

    def __enter__(self) -> Self:
        self._old_handler = signal.signal(signal.SIGALRM, _hang)
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._old_handler)

    def judge(self, mutant: Mutant, *, copy: bool) -> None:
        """Judge one mutant, mapped, and with ``copy`` also copied: both must end alike."""
        try:
            self._judge(mutant, copy=copy)
        except BaseException as error:
            error.add_note(f"mutant {mutant.label}")
            raise

    def _judge(self, mutant: Mutant, *, copy: bool) -> None:
        self.path.write_bytes(mutant.data)
        outcome = self._read(mutant, copy=False)
        if copy:
            _require_alike(outcome, self._read(mutant, copy=True))
        if isinstance(outcome, _Refused):
            self.figures.refused[str(outcome.error.code)] += 1
            assert not mutant.valid, f"a well-formed file was refused: {outcome.error}"
            assert flaw(mutant.data) is not None, f"refused, but nothing is wrong with it: {outcome.error}"
            _require_located(outcome.error, len(mutant.data))
            return
        self.figures.accepted += 1
        self.figures.refused_at_load += bool(outcome.bad_data)
        assert not (mutant.valid and outcome.bad_data), f"valid data was refused: {outcome.bad_data}"
        assert flaw(mutant.data) is None, f"accepted in spite of {flaw(mutant.data)}"
        document = read_document(mutant.data)
        _require_same_facts(outcome, document, mutant.data)
        if outcome.rewritten is not None:
            assert outcome.rewritten == document.canonical(), "rewriting does not give the canonical bytes"
            self._require_stable(outcome.rewritten)

    def _read(self, mutant: Mutant, *, copy: bool) -> _Refused | _Accepted:
        limit = 2 * len(mutant.data) + MAX_GROWTH_BEYOND_TWICE_THE_FILE
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        tracemalloc.start()
        outcome, seconds = self._timed(copy=copy)
        growth = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if seconds > MAX_SECONDS:
            seconds = median(self._timed(copy=copy)[1] for _ in range(3))
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.figures.slowest_ms = max(self.figures.slowest_ms, 1000 * seconds)
        self.figures.peak_growth = max(self.figures.peak_growth, growth)
        assert seconds <= MAX_SECONDS, f"took {1000 * seconds:.0f} ms"
        assert growth <= limit, f"memory grew by {growth} bytes for a file of {len(mutant.data)}"
        return outcome

    def _timed(self, *, copy: bool) -> tuple[_Refused | _Accepted, float]:
        start = process_time()
        try:
            with ModelLoader.open(self.path, copy=copy) as model:
                outcome: _Refused | _Accepted = _examined(model)
        except OinfError as error:
            outcome = _Refused(error)
        return outcome, process_time() - start

    def _require_stable(self, canonical: bytes) -> None:
        self._again.write_bytes(canonical)
        with ModelLoader.open(self._again) as model:
            assert package_of(model, model.version).to_bytes() == canonical, "canonical bytes change when rewritten"


def _hang(_signal: int, _frame: FrameType | None) -> None:
    raise HangError


def _examined(model: ModelLoader) -> _Accepted:
    """Read everything the model offers, and write it again."""
    values: dict[str, Any] = dict(model.metadata)
    assert values.keys() == model.metadata_info.keys()
    stored: dict[str, npt.NDArray[np.uint8]] = {}
    bad_data: set[str] = set()
    for name, info in model.tensors.items():
        try:
            tensor = model.load(name)
        except OinfError as error:
            _require_code(error, Code.BAD_TENSOR_DATA if info.has_data else Code.NO_DATA)
            if info.has_data:
                bad_data.add(name)
                _require_located(error, model.file_size)
            continue
        assert info.has_data
        assert tensor.to_numpy().shape == info.shape
        stored[name] = tensor.storage
    try:
        rewritten = package_of(model, model.version).to_bytes()
    except OinfError as error:
        _require_code(error, Code.BAD_TENSOR_DATA)
        rewritten = None
    assert (rewritten is None) == bool(bad_data), "a file with bad data was rewritten, or a good one was not"
    return _Accepted(model, stored, bad_data, rewritten)


def _require_code(error: OinfError, code: Code) -> None:
    assert error.code is code, str(error)


def _require_located(error: OinfError, size: int) -> None:
    assert isinstance(error.code, Code)
    assert error.field, f"no field is named: {error}"
    assert error.offset is not None
    assert 0 <= error.offset <= size, f"offset {error.offset} is outside the file of {size} bytes: {error}"
    assert error.code in str(error)


def _require_alike(mapped: _Refused | _Accepted, copied: _Refused | _Accepted) -> None:
    if isinstance(mapped, _Refused) and isinstance(copied, _Refused):
        first, second = mapped.error, copied.error
        assert (first.code, first.field, first.offset) == (second.code, second.field, second.offset)
        return
    assert isinstance(mapped, _Accepted), "only the copying mode accepts the file"
    assert isinstance(copied, _Accepted), "only the mapping mode accepts the file"
    assert mapped.rewritten == copied.rewritten
    assert mapped.bad_data == copied.bad_data


def _require_same_facts(outcome: _Accepted, document: Document, data: bytes) -> None:
    model = outcome.model
    assert model.version == document.version
    assert model.sizevars == {row.name.decode(): row.value for row in document.sizevars}
    assert {name: info.tag for name, info in model.metadata_info.items()} == {
        row.name.decode(): row.tag for row in document.metadata
    }
    assert len(model.tensors) == len(document.tensors)
    bases: set[int] = set()
    for row in document.tensors:
        info = model.tensors[row.name.decode()]
        assert (info.dtype.name, list(info.shape)) == (NAME_OF_TAG[row.tag], row.dims)
        assert (info.has_data, info.quant is not None) == (row.data is not None, row.quant is not None)
        if info.offset is None:
            continue
        assert info.offset + info.nbytes <= len(data), "a view reaches past the end of the file"
        if row.name.decode() in outcome.bad_data:
            assert not good_elements(row.tag, row.dims, row.data or b""), f"good elements of {row.name!r} were refused"
        else:
            view = outcome.stored[row.name.decode()]
            assert view.tobytes() == row.data
            assert good_elements(row.tag, row.dims, row.data or b""), f"bad elements of {row.name!r} were loaded"
            bases |= {view.ctypes.data - info.offset} if view.size else set()
    assert len(bases) <= 1, "views are not all parts of one mapping"
    assert all(base % PAGE == 0 for base in bases), "views do not lie in the mapping where the file says"
