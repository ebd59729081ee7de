"""The addresses of values in C: pointers that are declared at the start of a function."""

from openinfer.synth.program.ir import Storage, Value
from openinfer.synth.targets.c.dialect import stored_type
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.function import Declaration
from openinfer.synth.targets.cstyle.names import comment


class Pointers:
    """Pointers to values."""

    def __init__(self, file: HostFile) -> None:
        self._file = file
        self._placed = file.placed
        self._plan = file.placed.memory

    def is_constant(self, value: Value) -> bool:
        """Whether the memory of a value is read-only: the caller's input, or a view of a table."""
        return self._plan.classes.root(value).storage.is_read_only or value in self._plan.views

    def location(self, value: Value) -> str:
        """A pointer to a value's first element, valid in any function."""
        root = self._plan.classes.root(value)
        kind = stored_type(value.dtype)
        match root.storage:
            case Storage.INPUT if root in self._placed.input_offsets:
                return f"({kind} *){offset_from('c->arena', self._placed.input_offsets[root])}"
            case Storage.INPUT:
                return f"c->in->{self._placed.names.inputs[str(root.variable)]}"
            case Storage.STATE:
                return f"({kind} *){offset_from('c->state', self._placed.state.homes[root])}"
            case _:
                return f"({kind} *){offset_from('c->arena', self._plan.offset(root))}"

    def pointer(self, value: Value) -> str:
        """The name of a value's memory in the current function.

        Values of one variable share the name if they share memory because one is computed in place of the other.
        """
        now, root = self._file.now, self._plan.classes.root(value)
        if root in now.given:
            now.used.add(now.given[root])
            return now.given[root]
        memory, is_view = now.memory, value in self._plan.views
        kind = f"{'const ' if self.is_constant(value) else ''}{stored_type(value.dtype)}"
        about = comment(f"{value.variable or 'scratch'}: {value.dtype.name}[{', '.join(map(repr, value.shape))}]")
        key = value.name if is_view else (kind, self.location(value), about)
        if key not in memory:
            own = self._file.now.fresh("t")
            place = f"*{own} = NULL" if is_view else f"*const {own} = {self.location(value)}"
            memory[key] = Declaration(own, f"{kind} {place};", about)
        return memory[key].name


def offset_from(base: str, offset: int) -> str:
    """A pointer to a byte at an offset, as the operand of a cast."""
    return f"({byte_at(base, offset)})" if offset else base


def byte_at(base: str, offset: int) -> str:
    """A pointer to a byte at an offset, as an argument.

    >>> byte_at("c->state", 64), byte_at("c->state", 0)
    ('c->state + 64', 'c->state')
    """
    return f"{base} + {offset}" if offset else base
