"""The operands of steps in C: pointers to values, and to weights, one of which indices may select."""

from collections.abc import Mapping
from dataclasses import replace

from openinfer.ir.expr import Expr
from openinfer.synth.memory.checks.records import ChosenTensor, IndexFailure
from openinfer.synth.program.ir import StepOperand, Value, Weight
from openinfer.synth.targets.c.dialect import stored_type
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.code import ExprText, Rank, joined
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.function import Declaration
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.integers import Integer
from openinfer.synth.targets.cstyle.names import comment


class Operands:
    """Prints operands in the current function."""

    def __init__(self, file: HostFile, pointers: Pointers, indices: IndexPrinter) -> None:
        self._file = file
        self._pointers = pointers
        self._indices = indices

    def operand(self, operand: StepOperand, checks: ChosenTensor | None, depth: int) -> str:
        """The name of an operand's memory; a weight that indices select is looked up right before the next line."""
        if isinstance(operand, Value):
            return self._pointers.pointer(operand)
        where = self._offset(operand, checks, depth)
        if operand.index:
            declared = _declared(operand, self._file.now.fresh("wi"), where)
            self._file.line(depth, declared.text(0))
            return declared.name
        memory, key = self._file.now.memory, (operand.dtype.name, where)
        if key not in memory:
            memory[key] = _declared(operand, self._file.now.fresh("w"), where)
        return memory[key].name

    def _offset(self, weight: Weight, checks: ChosenTensor | None, depth: int) -> str:
        """The offset of a weight; an expression if indices select the weight."""
        places = self._file.placed.weights.places(weight)
        if checks is None:
            return str(places.offsets[0])
        if places.line is not None and not places.line[1]:
            self.require(checks, depth)
            return str(places.line[0])
        index = self.chosen(weight, checks, depth)
        if places.line is not None:
            first, step = places.line
            return f"{f'{first} + ' if first else ''}{joined(index, '*', ExprText(str(step))).text}"
        offsets = self._file.lists.name("offsets", places, places.offsets)
        place = self._file.now.fresh("at")
        self._file.line(depth, f"const int64_t {place} = {offsets}[{index.text}];")
        if checks.gap is not None:
            self._file.line(depth, f"if ({place} < 0) {self._file.fail(checks.gap)}")
        return place

    def chosen(self, weight: Weight, checks: ChosenTensor, depth: int) -> ExprText:
        """The position of the tensor that indices select in a family; indices out of bounds are an error."""
        looked_at = self.require(checks, depth)
        index: ExprText | None = None
        for expr, extent, first in zip(weight.index, weight.extents, weight.firsts, strict=True):
            found = looked_at[expr] if expr in looked_at else self._indices.integer(expr, depth)
            part = found.code if first == 0 else joined(found.code, "-", ExprText(str(first)))
            index = part if index is None else joined(joined(index, "*", ExprText(str(extent))), "+", part)
        assert index is not None
        return index

    def require(self, checks: ChosenTensor, depth: int) -> Mapping[Expr, Integer]:
        """Prints the bounds check of a family's indices; returns the indices that needed one."""
        found = {expr: self._computed(expr, depth) for expr in dict.fromkeys(one.expr for one in checks.spans)}
        tests: list[str] = []
        for one in checks.spans:
            # Compilers warn about testing whether an unsigned number is negative.
            tests += [f"{found[one.expr].text} < {one.first}"] * one.can_be_below
            tests += [f"{found[one.expr].text} > {one.last}"] * one.can_be_above
        if isinstance(checks.failure, IndexFailure):
            self._file.line(depth, f"if ({' || '.join([*tests, 'bad'])}) {self._file.fail_bad(checks.failure)}")
        elif checks.failure is not None:
            self._file.line(depth, f"if ({' || '.join(tests)}) {self._file.fail(checks.failure)}")
        return found

    def _computed(self, expr: Expr, depth: int) -> Integer:
        """An index; one whose computation can fail is computed before any index is checked."""
        found = self._indices.integer(expr, depth)
        if not found.range.faults:
            return found
        name = self._file.now.fresh("index")
        self._file.line(depth, f"const int64_t {name} = {found.text};")
        return replace(found, text=name, rank=Rank.ATOM)


def _declared(weight: Weight, name: str, where: str) -> Declaration:
    """The declaration of a pointer to a weight at an offset from the first one."""
    kind, shape = stored_type(weight.dtype), ", ".join(map(repr, weight.shape))
    named = weight.names[0] if len(weight.names) == 1 else f"{weight.names[0]} and {len(weight.names) - 1} more"
    part = "" if weight.part == "data" else f"{weight.part} of "
    packed = "" if weight.packing is None else f", {weight.packing.words}"
    about = comment(f"{part}{named}: {weight.dtype.name}[{shape}]{packed}")
    place = "c->weights" if where == "0" else f"(c->weights + {where})"
    return Declaration(name, f"const {kind} *const {name} = (const {kind} *){place};", about)
