"""The functions of blocks: their names, and what they are called with."""

from collections.abc import Callable

from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import BlockParams, Value
from openinfer.synth.program.names import field as field_name
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.integers import NARROW, WIDE, Integer


class BlockFunctions:
    """The functions of a program; ``pointer_type`` says what a parameter points to that has the address of a value."""

    def __init__(self, file: HostFile, pointer_type: Callable[[Value], str]) -> None:
        self._file = file
        self._program = file.program
        self._pointer_type = pointer_type
        self._names = {block: self._function(block, at) for at, block in enumerate(file.program.blocks)}

    def name(self, block: str) -> str:
        """The function of a block."""
        return self._names[block]

    def _function(self, block: str, number: int) -> str:
        """What the function of a block is called; a further copy of a block is called after it."""
        plain = block.replace(".", "_")
        return field_name("block_", block if plain in self._program.bound.source.blocks else plain, number)

    def head(self, block: str) -> str:
        """The function of a block as it is declared."""
        given = self.given(block)
        params = [f"{self._pointer_type(value)} *{own}" for value, own in given.items()]
        params += [f"{NARROW if found.is_narrow else WIDE} {found.text}" for found in self.called_with(block).values()]
        return f"static int {self.name(block)}({', '.join([f'{self._file.name}_context *c', *params])})"

    def given(self, block: str) -> dict[Value, str]:
        """The addresses that a block is called with, by the values that lie there."""
        params = self._program.params.get(block, BlockParams())
        named = [(one, "a_", _unqualified(str(one.variable))) for one in params.args]
        found = {one: field_name(prefix, name, place) for place, (one, prefix, name) in enumerate(named)}
        return found | {one: f"r_{place}" for place, one in enumerate(params.results)}

    def called_with(self, block: str) -> dict[str, Integer]:
        """The integers that a block is called with."""
        found: dict[str, Integer] = {}
        for place, index in enumerate(self._program.params.get(block, BlockParams()).indices):
            prefix, plain = ("w_", _unqualified(index.tensor)) if index.is_chosen else ("i_", index.name)
            own = field_name(prefix, plain, place)
            inside = Computed(index.least, index.most)
            found[index.name] = Integer(own, inside, is_narrow=self._file.narrows(inside))
        return found


def _unqualified(variable: str) -> str:
    """A variable's name in its block."""
    return variable.rpartition(".")[2]
