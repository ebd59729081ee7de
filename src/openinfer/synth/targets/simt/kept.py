"""Rows in registers: what a thread has loaded or computed for its elements stays there from one loop to the next.

Loops over the same extents give a thread the same elements. So what one of them loads, later ones need not load again;
what one stores and another one reads and stores again is stored once.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from openinfer.loops.affine import variables
from openinfer.loops.build import rounded
from openinfer.loops.ir import Let, Load, Scalar, ScalarVar, Statement, Store, scalars, visit
from openinfer.synth.targets.simt.row_loops import RowLoop
from openinfer.synth.targets.simt.wide import FreshNames, KeptElements, WideCopies

_Key: TypeAlias = tuple[str, tuple[Scalar, ...]]
"""An element that loops over the same extents call alike: its buffer, and where it is."""


class KeptRow:
    """What the loops over the same extents know of a row's elements."""

    def __init__(self, loops: Sequence[RowLoop]) -> None:
        refused = {name for one in loops for name in _refused(one)}
        self._loads = [{load: key for load, key in _loads(one) if key[0] not in refused} for one in loops]
        self._stores = [{at: key for at, key in _stores(one) if key[0] not in refused} for one in loops]
        self._place = 0
        self._known: dict[int, dict[_Key, tuple[Scalar, ...]]] = {}
        """What is known of the elements of a chunk."""

    @property
    def words(self) -> int:
        """The registers of an element, at most, that are kept from one loop to the next; 0 if nothing is."""
        kept = [self._kept_behind(place) for place in range(len(self._loads))]
        return max(sum(max(bits // 32, 1) for bits in one.values()) for one in kept)

    def _kept_behind(self, place: int) -> dict[_Key, int]:
        """What is known once a loop has run and is asked for later, with its bits."""
        found: dict[_Key, int] = {}
        for loads in self._loads[place + 1 :]:
            found |= {key: load.dtype.bits for load, key in loads.items()}
        seen = {key for loads in self._loads[: place + 1] for key in loads.values()}
        seen |= {key for stores in self._stores[: place + 1] for key in stores.values()}
        return {key: bits for key, bits in found.items() if key in seen}

    # --- a loop -------------------------------------------------------------------------------------------------------

    def elements(self, chunk: int) -> KeptElements:
        """What is known of a chunk of the loop at hand, and what will be asked for."""
        known, later = self._known.setdefault(chunk, {}), self._kept_behind(self._place)
        loads, stores = self._loads[self._place], self._stores[self._place]
        again = {key for others in self._stores[self._place + 1 :] for key in others.values()}
        return KeptElements(
            {load: known[key] for load, key in loads.items() if key in known},
            [load for load, key in loads.items() if key in later],
            [at for at, key in stores.items() if key in later],
            [at for at, key in stores.items() if key in again],
        )

    def took(self, chunk: int, made: WideCopies, one: RowLoop, names: FreshNames) -> Iterator[Let]:
        """Keep what a chunk of the loop at hand has loaded and stored, as it would be loaded."""
        known, later = self._known[chunk], self._kept_behind(self._place)
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
        """Other names for what the loop at hand has made known of a chunk; from now on it is known by them."""
        found: dict[Scalar, ScalarVar] = {}
        known = self._known[chunk]
        for key in self._made():
            for value in known.get(key, ()):
                found.setdefault(value, names.var("kept", value.dtype))
            if key in known:
                known[key] = tuple(found[value] for value in known[key])
        return found

    def _made(self) -> set[_Key]:
        """What is known because of the loop at hand."""
        before = {key for loads in self._loads[: self._place] for key in loads.values()}
        before |= {key for stores in self._stores[: self._place] for key in stores.values()}
        own = set(self._loads[self._place].values()) - before
        return own | set(self._stores[self._place].values())

    def next_loop(self) -> None:
        """Go on to the next loop."""
        later = self._kept_behind(self._place)
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
    """Buffers of which nothing is kept: what is stored is not what is loaded, or in the wrong order."""
    own = {each.var.name for each in one.body if isinstance(each, Let)}
    stored: set[str] = set()
    for each in one.body:
        yield from (part.buffer.name for part in _parts(each) if isinstance(part, Load) and part.buffer.name in stored)
        if isinstance(each, Store):
            if each.buffer.name in stored or variables(*each.index) & own or not _is_rounded(each):
                yield each.buffer.name
            stored.add(each.buffer.name)


def _is_rounded(one: Store) -> bool:
    """Whether it can be said what a value is once it was stored."""
    dtype = one.buffer.dtype
    return dtype.compute is one.value.dtype and (dtype is dtype.compute or dtype.kind == "float")
