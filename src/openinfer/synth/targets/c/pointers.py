"""Where values lie, as C: pointers that are declared where a function begins."""

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
        """Whether the memory of a value is read-only: the caller's input, or a table's own memory."""
        return self._plan.classes.root(value).storage is Storage.INPUT or value in self._plan.views

    def location(self, value: Value) -> str:
        """A pointer to a value's first element, valid in any function."""
        root = self._plan.classes.root(value)
        kind = stored_type(value.dtype)
        match root.storage:
            case Storage.INPUT:
                return f"c->in->{self._placed.names.inputs[str(root.variable)]}"
            case Storage.STATE:
                return f"({kind} *)(c->state + {self._placed.state.homes[root]})"
            case _:
                return f"({kind} *)(c->arena + {self._plan.offset(root)})"

    def pointer(self, value: Value) -> str:
        """The name of a value's memory in the function that is being printed."""
        memory = self._file.now.memory
        if value.name not in memory:
            own = self._file.now.fresh("t")
            kind = f"{'const ' if self.is_constant(value) else ''}{stored_type(value.dtype)}"
            shape = ", ".join(map(repr, value.shape))
            about = comment(f"{value.variable or 'scratch'}: {value.dtype.name}[{shape}]")
            is_view = value in self._plan.views
            place = f"*{own} = NULL" if is_view else f"*const {own} = {self.location(value)}"
            memory[value.name] = Declaration(own, f"{kind} {place};", about)
        return memory[value.name].name
