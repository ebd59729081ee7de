"""What steps work on, as C: pointers to values and to weights, of which indices may choose one."""

from collections.abc import Mapping
from dataclasses import replace

from openinfer.ir.expr import Expr
from openinfer.synth.program.failures import NO_TENSOR
from openinfer.synth.program.ir import StepOperand, Value, Weight
from openinfer.synth.targets.c.dialect import stored_type
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.function import Declaration
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.integers import Integer
from openinfer.synth.targets.cstyle.names import comment


class Operands:
    """Operands in the function that is being printed."""

    def __init__(self, file: HostFile, pointers: Pointers, indices: IndexPrinter) -> None:
        self._file = file
        self._pointers = pointers
        self._indices = indices

    def operand(self, operand: StepOperand, node: int, depth: int) -> str:
        """The name of an operand's memory; a weight that indices choose is found where the next line stands."""
        if isinstance(operand, Value):
            return self._pointers.pointer(operand)
        where = self._offset(operand, node, depth)
        if operand.index:
            declared = _declared(operand, self._file.now.fresh("wi"), where)
            self._file.line(depth, declared.text(0))
            return declared.name
        memory, key = self._file.now.memory, (operand.dtype.name, where)
        if key not in memory:
            memory[key] = _declared(operand, self._file.now.fresh("w"), where)
        return memory[key].name

    def _offset(self, weight: Weight, node: int, depth: int) -> str:
        """The offset of a weight; of one that indices choose, the expression of it."""
        places = self._file.placed.weights.places(weight)
        if not weight.index:
            return str(places.offsets[0])
        if places.line is not None and not places.line[1]:
            self.require(weight, node, depth)
            return str(places.line[0])
        index = self.chosen(weight, node, depth)
        if places.line is not None:
            first, step = places.line
            return f"{f'{first} + ' if first else ''}{index} * {step}"
        offsets = self._file.lists.name("offsets", places, places.offsets)
        place = self._file.now.fresh("at")
        self._file.line(depth, f"const int64_t {place} = {offsets}[{index}];")
        if places.has_gaps:
            self._file.line(depth, f"if ({place} < 0) {self._file.fail(node, NO_TENSOR)}")
        return place

    def chosen(self, weight: Weight, node: int, depth: int) -> str:
        """Which of a family's tensors its indices choose; those outside are an error."""
        looked_at = self.require(weight, node, depth)
        index = ""
        for expr, extent, first in zip(weight.index, weight.extents, weight.firsts, strict=True):
            found = looked_at[expr] if expr in looked_at else self._indices.integer(expr, depth)
            part = found.text if first == 0 else f"({found.text} - {first})"
            index = f"({index} * {extent} + {part})" if index else part
        return index

    def require(self, weight: Weight, node: int, depth: int) -> Mapping[Expr, Integer]:
        """The bounds check of the indices of a family; the indices that needed one."""
        axes = zip(weight.index, weight.firsts, weight.extents, strict=True)
        spans = [(expr, first, first + extent - 1) for expr, first, extent in axes]
        spans = [one for one in spans if not self._is_inside(*one)]
        found = {expr: self._computed(expr, depth) for expr in dict.fromkeys(expr for expr, _, _ in spans)}
        checks: list[str] = []
        for expr, first, last in spans:
            one = found[expr]
            # Compilers object to asking whether an unsigned number is negative.
            checks += [f"{one.text} < {first}"] * (one.least < first or bool(one.mistakes))
            checks += [f"{one.text} > {last}"] * (one.most > last)
        if any(one.mistakes for one in found.values()):
            fail = self._file.fail_bad(node, NO_TENSOR)
            self._file.line(depth, f"if ({' || '.join([*checks, 'bad'])}) {fail}")
        elif checks:
            self._file.line(depth, f"if ({' || '.join(checks)}) {self._file.fail(node, NO_TENSOR)}")
        return found

    def _is_inside(self, expr: Expr, first: int, last: int) -> bool:
        found = self._indices.bounds(expr)
        return not found.mistakes and first <= found.least and found.most <= last

    def _computed(self, expr: Expr, depth: int) -> Integer:
        """An index; one whose computation can fail is computed before it and those after it are checked."""
        found = self._indices.integer(expr, depth)
        if not found.mistakes:
            return found
        name = self._file.now.fresh("index")
        self._file.line(depth, f"const int64_t {name} = {found.text};")
        return replace(found, text=name)


def _declared(weight: Weight, name: str, where: str) -> Declaration:
    """A pointer to a weight at an offset from the first one."""
    kind, shape = stored_type(weight.dtype), ", ".join(map(repr, weight.shape))
    named = weight.names[0] if len(weight.names) == 1 else f"{weight.names[0]} and {len(weight.names) - 1} more"
    part = "" if weight.part == "data" else f"{weight.part} of "
    packed = "" if weight.packing is None else ", in panels"
    about = comment(f"{part}{named}: {weight.dtype.name}[{shape}]{packed}")
    return Declaration(name, f"const {kind} *const {name} = (const {kind} *)(c->weights + {where});", about)
