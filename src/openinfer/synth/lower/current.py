"""The current value of each variable at a point of the program, during lowering.

Tracks which variables are in their own home and which in another's, so that control flow joins need not scan all of
them.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from openinfer.check.reach import NameBits
from openinfer.dtypes import DTYPES
from openinfer.ir.expr import names
from openinfer.synth.program.ir import StepOperand, Value, Weight


@dataclass
class Homes:
    """The homes of a program so far. Sets of variables are bit masks in integers."""

    bits: NameBits
    values: dict[str, Value] = field(default_factory=dict)
    all: int = 0
    """The variables that have a home."""

    def add(self, name: str, home: Value) -> None:
        """Give a variable a home."""
        self.values[name] = home
        self.all |= self.bits.of((name,))

    def copy(self) -> "Homes":
        """A snapshot of the homes."""
        return Homes(self.bits, dict(self.values), self.all)


class CurrentValues:
    """The values of all variables that have been read or written.

    At the start of a block, variables are in the homes in ``begins``, or in its own ``copies``.
    """

    def __init__(self, homes: Homes, begins: Homes | None = None, copies: Mapping[str, Value] | None = None) -> None:
        self._bits = homes.bits
        self._homes: Mapping[str, Value] = homes.values
        self._begins: Mapping[str, Value] = {} if begins is None else begins.values
        self._copies: Mapping[str, Value] = copies or {}
        self._values: dict[str, StepOperand] = {}
        self._order: dict[str, int] = {}
        self._count = 0
        self._settled = 0
        """Variables that are in their own home."""
        self._begun = 0 if begins is None else begins.all & ~self._bits.of(self._copies)
        self._untouched = self._begun
        """Variables that are still where the block found them: nothing has read or written them."""
        self._guests: dict[str, set[str]] = {}
        """For each variable, the others whose value is in its home, or in a copy of it."""
        self._hosts = 0
        """The variables that have guests."""
        self._choosing: dict[str, set[str]] = {}
        """For each loop index, the variables whose value is a model tensor that it selects."""
        self._changes: list[tuple[str, StepOperand | None, int]] = []

    def beginning(self, name: str) -> Value | None:
        """The initial value of an untouched variable, if the block starts with one."""
        return self._copies.get(name, self._begins.get(name))

    def touched(self, wanted: int) -> list[str]:
        """The wanted variables that have been read or written, by name."""
        return self._bits.names(wanted & self._bits.of(self._values))

    def astray(self, wanted: int) -> list[str]:
        """The wanted variables that are not in their own home, by name."""
        return self._bits.names(wanted & ~self._settled & ~self._untouched)

    def guests(self, owners: int) -> list[str]:
        """Variables whose value is in the home of one of ``owners``."""
        found = {
            owner: [name for name in self._guests[owner] if self._homes.get(owner) is self._location(name)]
            for owner in self._bits.each(owners & self._hosts)
        }
        return self._ordered(name for owner, all_ in found.items() for name in all_ if name != owner)

    def residents(self, homes: Set[Value]) -> list[str]:
        """Variables whose value is in one of some homes, including their own."""
        owners = {str(home.variable) for home in homes}
        found = owners.union(*(self._guests.get(owner, ()) for owner in owners))
        return self._ordered(name for name in found if self._location(name) in homes)

    def chosen_by(self, index: str) -> list[str]:
        """Variables whose value is a model tensor that a loop index selects."""
        return self._ordered(self._choosing.get(index, ()))

    def _location(self, name: str) -> Value:
        found = self._values.get(name)
        return found if isinstance(found, Value) else _NOWHERE

    def _ordered(self, found: Iterable[str]) -> list[str]:
        return sorted(found, key=self._order.__getitem__)

    # --- values -----------------------------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> StepOperand:
        return self._values[name]

    def __setitem__(self, name: str, value: StepOperand) -> None:
        self._change(name, value, self._order.get(name, self._count))

    def forget(self, name: str) -> None:
        """Drop a variable's value: its lifetime starts over."""
        self._change(name, None, 0)

    def checkpoint(self) -> int:
        """A point for ``restore`` to go back to."""
        return len(self._changes)

    def restore(self, checkpoint: int, kept: int) -> None:
        """Roll back all variables but ``kept`` to their values at a checkpoint."""
        first: dict[str, tuple[str, StepOperand | None, int]] = {}
        for change in self._changes[checkpoint:]:
            first.setdefault(change[0], change)
        staying = set(self._bits.each(kept & self._bits.of(first)))
        for name, value, order in first.values():
            if name not in staying:
                self._change(name, value, order)
        self._changes[checkpoint:] = [change for name, change in first.items() if name in staying]

    def _change(self, name: str, value: StepOperand | None, order: int) -> None:
        before = self._values.get(name)
        self._changes.append((name, before, self._order.get(name, 0)))
        for index in _indices(before):
            self._choosing[index].discard(name)
        bit = self._bits.of((name,))
        self._settled &= ~bit
        self._leave(name, before)
        if value is None:
            self._values.pop(name, None)
            self._order.pop(name, None)
            self._untouched |= self._begun & bit
            return
        self._untouched &= ~bit
        self._values[name], self._order[name] = value, order
        self._count = max(self._count, order + 1)
        for index in _indices(value):
            self._choosing.setdefault(index, set()).add(name)
        if isinstance(value, Value) and value.is_home:
            if value is self._homes.get(name):
                self._settled |= bit
            else:
                self._guests.setdefault(str(value.variable), set()).add(name)
                self._hosts |= self._bits.of((str(value.variable),))

    def _leave(self, name: str, value: StepOperand | None) -> None:
        """A variable stops being a guest of the one whose home holds its value."""
        host = str(value.variable) if isinstance(value, Value) else ""
        if name in self._guests.get(host, ()):
            self._guests[host].discard(name)
            if not self._guests[host]:
                del self._guests[host]
                self._hosts &= ~self._bits.of((host,))


_NOWHERE = Value("", DTYPES["u8"], ())


def _indices(value: StepOperand | None) -> set[str]:
    if not isinstance(value, Weight):
        return set()
    return {name for expr in value.index for name in names(expr)}
