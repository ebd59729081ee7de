"""Rows in registers: a thread keeps what it has loaded or computed from one loop to the next.

Loops over the same extents assign the same elements to a thread. So later loops need not load an element again, and an
element that a later loop overwrites is stored only once.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from openinfer.loops.affine import variables
from openinfer.loops.build import rounded
from openinfer.loops.ir import Let, Load, Scalar, ScalarVar, Space, Statement, Store, scalars, visit
from openinfer.synth.targets.simt.row_loops import RowLoop
from openinfer.synth.targets.simt.wide import FreshNames, KeptElements, WideCopies

_Key: TypeAlias = tuple[str, tuple[Scalar, ...]]
"""An element: its buffer, and its index in the canonical variables of loops over the same extents."""


class KeptRow:
    """The elements of a row that loops over the same extents keep in registers."""

    def __init__(self, loops: Sequence[RowLoop]) -> None:
        refused = {name for one in loops for name in _refused(one)}
        self._loads = [{load: key for load, key in _loads(one) if key[0] not in refused} for one in loops]
        self._stores = [{at: key for at, key in _stores(one) if key[0] not in refused} for one in loops]
        parts = (each.buffer for one in loops for each in one.body if isinstance(each, Store))
        self._own = {buffer.name for buffer in parts if buffer.space is Space.OWN}
        """Buffers that are nowhere else."""
        self._place = 0
        self._known: dict[int, dict[_Key, tuple[Scalar, ...]]] = {}
        """The values in registers, by chunk and element."""

    @property
    def words(self) -> int:
        """Registers per iteration that are live between loops at most; 0 if nothing is kept."""
        kept = [self._kept_after(place) for place in range(len(self._loads))]
        return max(sum(max(bits // 32, 1) for bits in one.values()) for one in kept)

    def _kept_after(self, place: int) -> dict[_Key, int]:
        """The elements that are available after a loop and used later, with their bits."""
        found: dict[_Key, int] = {}
        for loads in self._loads[place + 1 :]:
            found |= {key: load.dtype.bits for load, key in loads.items()}
        seen = {key for loads in self._loads[: place + 1] for key in loads.values()}
        seen |= {key for stores in self._stores[: place + 1] for key in stores.values()}
        return {key: bits for key, bits in found.items() if key in seen}

    # --- the current loop ---------------------------------------------------------------------------------------------

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads of the current loop that may stay in registers."""
        return tuple(self._loads[self._place])

    def elements(self, chunk: int) -> KeptElements:
        """The values in registers for a chunk of the current loop, and what later loops will use."""
        known, later = self._known.setdefault(chunk, {}), self._kept_after(self._place)
        loads, stores = self._loads[self._place], self._stores[self._place]
        again = {key for others in self._stores[self._place + 1 :] for key in others.values()}
        return KeptElements(
            {load: known[key] for load, key in loads.items() if key in known},
            [load for load, key in loads.items() if key in later],
            [at for at, key in stores.items() if key in later],
            [at for at, key in stores.items() if key in again or key[0] in self._own],
        )

    def took(self, chunk: int, made: WideCopies, one: RowLoop, names: FreshNames) -> Iterator[Let]:
        """Keeps what a chunk of the current loop has loaded and stored, rounded as if it were loaded again."""
        known, later = self._known[chunk], self._kept_after(self._place)
        for load, key in self._loads[self._place].items():
            if key in later and load in made.loaded:
                known[key] = made.loaded[load]
        for at, key in self._stores[self._place].items():
            store = one.body[at]
            if key in later and isinstance(store, Store):
                values = [rounded(value, store.buffer.dtype) for value in made.stored[at]]
                lets = [Let(names.var(f"{store.buffer.name}_kept", value.dtype), value) for value in values]
                plain = [isinstance(value, ScalarVar) for value in values]
                yield from (let for let, is_plain in zip(lets, plain, strict=True) if not is_plain)
                pairs = zip(values, lets, plain, strict=True)
                known[key] = tuple(value if is_plain else let.var for value, let, is_plain in pairs)

    def renamed(self, chunk: int, names: FreshNames) -> dict[Scalar, ScalarVar]:
        """New names for the values that the current loop stores of a chunk; later loops use these names."""
        found: dict[Scalar, ScalarVar] = {}
        known = self._known[chunk]
        for key in dict.fromkeys(self._stores[self._place].values()):
            for value in known.get(key, ()):
                found.setdefault(value, names.var("kept", value.dtype))
            if key in known:
                known[key] = tuple(found[value] for value in known[key])
        return found

    def next_loop(self) -> None:
        """Moves on to the next loop."""
        later = self._kept_after(self._place)
        self._place += 1
        self._known = {
            chunk: {key: values for key, values in known.items() if key in later}
            for chunk, known in self._known.items()
        }


def _loads(one: RowLoop) -> Iterator[tuple[Load, _Key]]:
    own = {each.var.name for each in one.body if isinstance(each, Let)}
    indices = {var.name for var in one.indices}
    for load in (part for each in one.body for part in _parts(each) if isinstance(part, Load)):
        used = variables(*load.index)
        if used & indices and not used & own:
            yield load, (load.buffer.name, one.alike(load.index))


def _stores(one: RowLoop) -> Iterator[tuple[int, _Key]]:
    for at, each in enumerate(one.body):
        if isinstance(each, Store):
            yield at, (each.buffer.name, one.alike(each.index))


def _parts(one: Statement) -> Iterator[Scalar]:
    yield from (part for value in scalars(one) for part in visit(value))


def _refused(one: RowLoop) -> Iterator[str]:
    """Buffers to leave out: a load would not give what was stored, or accesses come in the wrong order."""
    own = {each.var.name for each in one.body if isinstance(each, Let)}
    stored: set[str] = set()
    for each in one.body:
        yield from (part.buffer.name for part in _parts(each) if isinstance(part, Load) and part.buffer.name in stored)
        if isinstance(each, Store):
            if each.buffer.name in stored or variables(*each.index) & own or not _is_rounded(each):
                yield each.buffer.name
            stored.add(each.buffer.name)


def _is_rounded(one: Store) -> bool:
    """Whether the value that a load would give after a store can be computed by rounding."""
    dtype = one.buffer.dtype
    return dtype.compute is one.value.dtype and (dtype is dtype.compute or dtype.kind == "float")
