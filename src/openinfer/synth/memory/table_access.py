"""Table accesses: indices in the order of the table's axes, and their meaning."""

from dataclasses import dataclass

from openinfer.ir import Index, Single, Slice
from openinfer.synth.memory.state import TableLayout
from openinfer.synth.program.ir import TableStep


@dataclass(frozen=True)
class TableAccess:
    """One access to a table, with its indices in the order of the table's axes."""

    layout: TableLayout
    step: TableStep

    @property
    def _order(self) -> list[int]:
        decl = self.layout.table.variable.decl
        assert decl is not None
        keys = [index for index in decl.table_indices if index not in decl.auto_dim]
        return [decl.table_indices.index(name) for name in (*keys, *decl.auto_dim)]

    @property
    def ordered(self) -> list[Index]:
        """The indices in axis order; omitted ones select everything."""
        given = self.step.indices
        complete = (*given, *(Slice(),) * (self.layout.axes - len(given)))
        return [complete[axis] for axis in self._order]

    @property
    def grown(self) -> list[bool]:
        """Which indices determine a matrix's extents: the matrix's own, if all of them are single indices."""
        keys, ordered = self.layout.table.keys, self.ordered
        matrix = ordered[keys:]
        is_grown = bool(matrix) and all(isinstance(one, Single) for one in matrix)
        return [is_grown and axis >= keys for axis in range(len(ordered))]

    @property
    def is_whole_matrix(self) -> bool:
        """Whether no index of the matrix itself is given."""
        keys, given = self.layout.table.keys, len(self.step.indices)
        return self.layout.axes > keys and not any(place < given for place in self._order[keys:])
