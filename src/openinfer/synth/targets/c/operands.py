"""What steps work on: pointers to values and weights, and integers in index expressions."""

from dataclasses import replace
from math import prod

from openinfer.synth.program.failures import NO_TENSOR
from openinfer.synth.program.ir import Action, EntryStep, Family, Storage, Value, Weight, WeightCheck
from openinfer.synth.targets.c.dialect import stored_type
from openinfer.synth.targets.c.integers import Integer, IntegerPrinter, number
from openinfer.synth.targets.c.sizes import SizePrinter
from openinfer.synth.targets.cstyle.names import comment


class OperandPrinter(SizePrinter):
    """Operands as C expressions; pointers are declared where their function begins."""

    @property
    def _integers(self) -> IntegerPrinter:
        return IntegerPrinter(self._named, self.needs)

    def _is_input(self, value: Value) -> bool:
        return self._plan.classes.root(value).storage is Storage.INPUT

    def _is_constant(self, value: Value) -> bool:
        """Whether nothing writes where a value lies: the caller's input, or a table's own memory."""
        return self._is_input(value) or value in self._plan.views

    def location(self, value: Value) -> str:
        """A pointer to a value's first element, without regard to any function."""
        root = self._plan.classes.root(value)
        kind = stored_type(value.dtype)
        match root.storage:
            case Storage.INPUT:
                return f"c->in->{self._placed.names.inputs[str(root.variable)]}"
            case Storage.STATE:
                return f"({kind} *)(c->state + {self._placed.state.homes[root]})"
            case _:
                return f"({kind} *)(c->arena + {self._plan.offset(root)})"

    def _pointer(self, value: Value) -> str:
        """The name of a value's memory in this function."""
        if value.name not in self._now.pointers:
            kind = f"{'const ' if self._is_constant(value) else ''}{stored_type(value.dtype)}"
            shape = ", ".join(map(repr, value.shape))
            about = comment(f"{value.variable}: {value.dtype.name}[{shape}]")
            is_view = value in self._plan.views
            place = f"*{value.name} = NULL" if is_view else f"*const {value.name} = {self.location(value)}"
            self._now.pointers[value.name] = f"{kind} {place}; /* {about} */"
        return value.name

    def _operand(self, operand: Value | Weight, node: int, depth: int) -> str:
        if isinstance(operand, Value):
            return self._pointer(operand)
        kind, where = stored_type(operand.dtype), self._weight_place(operand, node, depth)
        about = operand.names[0] if len(operand.names) == 1 else f"{operand.names[0]} and {len(operand.names) - 1} more"
        shape = ", ".join(map(repr, operand.shape))
        part = "" if operand.part == "data" else f"{operand.part} of "
        packed = "" if operand.packing is None else ", in panels"
        about = comment(f"{part}{about}: {operand.dtype.name}[{shape}]{packed}")
        text = f"= (const {kind} *)(c->weights + {where}); /* {about} */"
        if not operand.index:
            key = f"{operand.dtype.name} {where}"
            if key not in self._now.pointers:
                self._now.pointers[key] = f"const {kind} *const w{len(self._now.pointers)} {text}"
            return self._now.pointers[key].split("*const ", 1)[1].split(" ", 1)[0]
        self._now.count += 1
        name = f"wi{self._now.count}"
        self._line(depth, f"const {kind} *const {name} {text}")
        return name

    def _weight_place(self, weight: Weight, node: int, depth: int) -> str:
        """The offset of a weight; of one that indices choose, the expression of it."""
        places = self._placed.weights.places(weight)
        if not weight.index:
            return str(places.offsets[0])
        self._now.count += 1
        place = f"at{self._now.count}"
        index = self._weight_number(weight, node, depth)
        if places.line is not None:
            first, step = places.line
            return f"{f'{first} + ' if first else ''}{index} * {step}" if step else str(first)
        self._line(depth, f"const int64_t {place} = {self.lists.name('offsets', places, places.offsets)}[{index}];")
        if places.has_gaps:
            self._line(depth, f"if ({place} < 0) {self._no_tensor(node)}")
        return place

    def _check_weight(self, step: WeightCheck, depth: int) -> None:
        index = self._weight_number(step.weight, step.node, depth)
        if "" in step.weight.names:
            there = tuple(int(bool(name)) for name in step.weight.names)
            self._line(depth, f"if (!{self.lists.name('there', there, there)}[{index}]) {self._no_tensor(step.node)}")

    def _no_tensor(self, node: int) -> str:
        return self._fail(node, NO_TENSOR)

    def _weight_number(self, weight: Weight, node: int, depth: int) -> str:
        """Which of a family's tensors its indices choose; those outside are an error."""
        parts, checks, is_bad = [], [], False
        for expr, extent, first in zip(weight.index, weight.extents, weight.firsts, strict=True):
            found = self._integers.integer(expr)
            is_bad = is_bad or found.can_fail
            # Compilers object to asking whether an unsigned number is negative.
            checks += [f"{found.text} < {first}"] * (found.least < first)
            checks += [f"{found.text} > {first + extent - 1}"] * (found.most > first + extent - 1)
            parts.append(found.text if first == 0 else f"({found.text} - {first})")
        self._now.has_bad = self._now.has_bad or is_bad
        if is_bad:
            fail = self._fail_bad(node, NO_TENSOR)
            self._line(depth, f"if ({' || '.join([*checks, 'bad'])}) {fail}")
        elif checks:
            self._line(depth, f"if ({' || '.join(checks)}) {self._no_tensor(node)}")
        index = parts[0]
        for part, extent in zip(parts[1:], weight.extents[1:], strict=True):
            index = f"({index} * {extent} + {part})"
        return index

    def _entry(self, step: EntryStep, depth: int) -> None:
        """An entry of a family that the graph writes: the step's own if it has written it, else the model's."""
        family, is_write = step.family, step.action is Action.WRITE
        weight, places = replace(family.entries, index=step.index), self._placed.weights.places(family.entries)
        self._line(depth, "{")
        self._line(depth + 1, f"const int64_t at = {self._weight_number(weight, step.node, depth + 1)};")
        checked = self._slots(family) if is_write else self._offsets(family)
        if (family.has_gaps if is_write else places.has_gaps) or step.action is Action.CHECK:
            self._line(depth + 1, f"if ({checked} < 0) {self._no_tensor(step.node)}")
        if step.action is not Action.CHECK:
            self._entry_access(step, weight.dtype.nbytes(prod(weight.shape)), depth + 1)
        self._line(depth, "}")

    def _slots(self, family: Family) -> str:
        """Where among the step's own entries the chosen one is."""
        return f"{self.lists.name('slots', family, family.slots)}[at]"

    def _offsets(self, family: Family) -> str:
        """Where among the weights the chosen entry is."""
        places = self._placed.weights.places(family.entries)
        return f"{self.lists.name('offsets', places, places.offsets)}[at]"

    def _entry_access(self, step: EntryStep, nbytes: int, depth: int) -> None:
        own, written, value = (self._pointer(one) for one in (step.family.own, step.family.written, step.value))
        slot = self._slots(step.family)
        mine = f"{own} + {slot} * {nbytes}"
        if step.action is Action.READ:
            chosen = f"{slot} >= 0 && {written}[{slot}] ? {mine} : c->weights + {self._offsets(step.family)}"
            self._line(depth, f"memcpy({value}, {chosen}, {nbytes});")
        else:
            self._line(depth, f"memcpy({mine}, {value}, {nbytes});")
            self._line(depth, f"{written}[{slot}] = 1;")

    # --- integers -------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> Integer:
        """A name in an index expression: a loop index, then a scalar variable, then a size."""
        for index, found in reversed(self._now.loops):
            if index == name:
                return found
        if name in self._program.bound.vars:
            constant = self._program.bound.constants.get(name)
            return self._scalar(self._program.homes[name]) if constant is None else number(int(constant))
        return self._any_size(name)

    def _scalar(self, home: Value) -> Integer:
        dtype, pointer = home.dtype, self._pointer(home)
        if dtype.is_packed:
            self.needs.add(f"oi_load_{dtype.name}")
            least, most = int(dtype.minimum), int(dtype.maximum)
            return Integer(f"(int64_t)oi_load_{dtype.name}({pointer}, 0)", least, most)
        if dtype.name == "u64":
            self.needs.add("oi_index_u64")
            return Integer(f"oi_index_u64(*{pointer}, &bad)", 0, (1 << 63) - 1, can_fail=True)
        return Integer(f"(int64_t)*{pointer}", int(dtype.minimum), int(dtype.maximum))
