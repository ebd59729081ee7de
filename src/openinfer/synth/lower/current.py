"""The value that each variable has at a point of the program, while a graph is lowered.

It knows which variables are at home and which have another one's home, so that no join of control
flow has to look through all of them.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from openinfer.check.reach import NameBits
from openinfer.dtypes import DTYPES
from openinfer.ir.expr import names
from openinfer.synth.program.ir import StepOperand, Value, Weight


@dataclass
class Homes:
    """The homes of a program, which has more of them as it grows. Sets of variables are bits of integers."""

    bits: NameBits
    values: dict[str, Value] = field(default_factory=dict)
    all: int = 0
    """The variables that have a home."""

    def add(self, name: str, home: Value) -> None:
        """A variable gets a home."""
        self.values[name] = home
        self.all |= self.bits.of((name,))

    def copy(self) -> "Homes":
        """The homes that there are now."""
        return Homes(self.bits, dict(self.values), self.all)


class CurrentValues:
    """A value for each variable that has been read or written.

    Where a block begins, variables are in the homes that it ``begins`` with, or in ``copies`` that only it has.
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
        """Variables that are at home."""
        self._begun = 0 if begins is None else begins.all & ~self._bits.of(self._copies)
        self._untouched = self._begun
        """Variables that are where they were when the block began: nothing has read or written them."""
        self._guests: dict[str, set[str]] = {}
        """For each variable those whose value lies in its home, or in a copy of it."""
        self._hosts = 0
        """The variables that have guests."""
        self._choosing: dict[str, set[str]] = {}
        """For each loop index the variables whose tensor of the model it chooses."""
        self._changes: list[tuple[str, StepOperand | None, int]] = []

    def beginning(self, name: str) -> Value | None:
        """The value of a variable that has not been touched, where it has one already."""
        return self._copies.get(name, self._begins.get(name))

    def touched(self, wanted: int) -> list[str]:
        """Those of some variables that have been read or written, in the order of their names."""
        return self._bits.names(wanted & self._bits.of(self._values))

    def astray(self, wanted: int) -> list[str]:
        """Those of some variables that are not at home, in the order of their names."""
        return self._bits.names(wanted & ~self._settled & ~self._untouched)

    def guests(self, owners: int) -> list[str]:
        """Variables whose value lies in the home of one of some others."""
        found = {
            owner: [name for name in self._guests[owner] if self._homes.get(owner) is self._lying(name)]
            for owner in self._bits.each(owners & self._hosts)
        }
        return self._ordered(name for owner, all_ in found.items() for name in all_ if name != owner)

    def residents(self, homes: Set[Value]) -> list[str]:
        """Variables whose value lies in one of some homes, also in their own."""
        owners = {str(home.variable) for home in homes}
        found = owners.union(*(self._guests.get(owner, ()) for owner in owners))
        return self._ordered(name for name in found if self._lying(name) in homes)

    def chosen_by(self, index: str) -> list[str]:
        """Variables that are a tensor of the model which a loop index chooses."""
        return self._ordered(self._choosing.get(index, ()))

    def _lying(self, name: str) -> Value:
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
        """The variable has no value any more: it begins again."""
        self._change(name, None, 0)

    def checkpoint(self) -> int:
        """What ``restore`` brings back."""
        return len(self._changes)

    def restore(self, checkpoint: int, kept: int) -> None:
        """Let all variables but some have the values they had."""
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
        """A variable is no longer the guest of the one in whose home its value lies."""
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
