"""The value that each variable has at a place of the program, while a graph is lowered.

It knows which variables are at home and which have another one's home, so that nobody has to look through all of them
wherever control flow joins.
"""

from collections.abc import Iterable, Mapping, Set

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import names
from openinfer.synth.program.ir import Operand, Value, Weight


class CurrentValues:
    """A value for each variable that has been read or written.

    ``homes`` are those of the program, which has more of them as it grows. Where a block begins, variables are in the
    ``begins`` among them, or in ``copies`` that only this block has.
    """

    def __init__(
        self,
        homes: Mapping[str, Value],
        begins: Mapping[str, Value] | None = None,
        copies: Mapping[str, Value] | None = None,
    ) -> None:
        self._homes = homes
        self._begins: Mapping[str, Value] = begins or {}
        self._copies: Mapping[str, Value] = copies or {}
        self._values: dict[str, Operand] = {}
        self._order: dict[str, int] = {}
        self._count = 0
        self._settled: set[str] = set()
        """Variables that are at home."""
        self._guests: set[str] = set()
        """Variables whose value lies in another home."""
        self._choosing: dict[str, set[str]] = {}
        """For each loop index the variables whose tensor of the model it chooses."""
        self._changes: list[tuple[str, Operand | None, int]] = []

    def beginning(self, name: str) -> Value | None:
        """The value of a variable that has not been touched, where it has one already."""
        return self._copies.get(name, self._begins.get(name))

    def touched(self, wanted: Set[str]) -> list[str]:
        """Those of some variables that have been read or written, in the order of their names."""
        return sorted(self._values.keys() & wanted)

    def astray(self, wanted: Set[str]) -> list[str]:
        """Those of some variables that are not at home, in the order of their names."""
        untouched = (self._begins.keys() & wanted) - self._values.keys() - self._copies.keys()
        return sorted(wanted - self._settled - untouched)

    def guests(self, owners: Set[str]) -> list[str]:
        """Variables whose value lies in the home of one of some others."""
        return self._ordered(
            name
            for name in self._guests
            if (owner := str(self._lying(name).variable)) != name
            and owner in owners
            and self._homes.get(owner) is self._lying(name)
        )

    def residents(self, homes: Set[Value]) -> list[str]:
        """Variables whose value lies in one of some homes, also in their own."""
        owners = {str(home.variable) for home in homes}
        return self._ordered(name for name in owners | self._guests if self._lying(name) in homes)

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

    def __getitem__(self, name: str) -> Operand:
        return self._values[name]

    def __setitem__(self, name: str, value: Operand) -> None:
        self._change(name, value, self._order.get(name, self._count))

    def forget(self, name: str) -> None:
        """The variable has no value any more: it begins again."""
        self._change(name, None, 0)

    def checkpoint(self) -> int:
        """What ``restore`` brings back."""
        return len(self._changes)

    def restore(self, checkpoint: int, kept: Set[str]) -> None:
        """Let all variables but some have the values they had."""
        first: dict[str, tuple[str, Operand | None, int]] = {}
        for change in self._changes[checkpoint:]:
            first.setdefault(change[0], change)
        for name, value, order in first.values():
            if name not in kept:
                self._change(name, value, order)
        self._changes[checkpoint:] = [change for name, change in first.items() if name in kept]

    def _change(self, name: str, value: Operand | None, order: int) -> None:
        before = self._values.get(name)
        self._changes.append((name, before, self._order.get(name, 0)))
        for index in _indices(before):
            self._choosing[index].discard(name)
        self._settled.discard(name)
        self._guests.discard(name)
        if value is None:
            self._values.pop(name, None)
            self._order.pop(name, None)
            return
        self._values[name], self._order[name] = value, order
        self._count = max(self._count, order + 1)
        for index in _indices(value):
            self._choosing.setdefault(index, set()).add(name)
        if isinstance(value, Value) and value.is_home:
            (self._settled if value is self._homes.get(name) else self._guests).add(name)


_NOWHERE = Value("", DTYPES["u8"], ())


def _indices(value: Operand | None) -> set[str]:
    if not isinstance(value, Weight):
        return set()
    return {name for expr in value.index for name in names(expr)}
