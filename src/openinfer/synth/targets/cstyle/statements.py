"""Kernels as C functions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from openinfer.loops.dim import sizes_in
from openinfer.loops.expand import expanded
from openinfer.loops.ir import (
    INDEX,
    Assign,
    Bind,
    Const,
    Contraction,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Local,
    Select,
    Statement,
    Store,
    Var,
    While,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import renamed, straightened, with_buffers
from openinfer.loops.used import used_buffers, used_sizes
from openinfer.synth.targets.cpu.blocked import LANES, blocked
from openinfer.synth.targets.cpu.byte_products import are_bytes
from openinfer.synth.targets.cpu.divide import scratch_elements
from openinfer.synth.targets.cpu.emit.byte_contraction import tiled_bytes
from openinfer.synth.targets.cpu.emit.contraction import side_by_side, tiled
from openinfer.synth.targets.cpu.reduction import gathered
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter, share
from openinfer.synth.targets.cstyle.types import scalar_type, stored_type

PAD = "    "
_TAKEN = {"n0", "m0", "m1", "row", "rows", "column", "columns", "tile", "to", "from", "start", "run", "height"}
_TAKEN |= {"begin", "end", "zero", "first", "byte", "half", "whole", "taps", "turned"}
_TAKEN |= {"panel", "k0", "step", "acc", "part", "lane", "k", "sums", "flips", "call", "index", "sin", "cos"}
"""Names that the printers bring, or that C has."""
_ROLLED = "#pragma GCC unroll 1 /* unrolled, gcc 12 takes wrong masks for AVX-512 */"
_IN_VECTORS = "#pragma GCC unroll 1 /* unrolled, gcc 12 makes no vectors of choices */"


@dataclass(frozen=True)
class Printed:
    """A kernel in C: its definition, the support functions it needs, the sizes it takes, whether it can fail."""

    text: str
    prototype: str
    """What a header says of it."""
    needs: frozenset[str]
    sizes: tuple[str, ...]
    can_fail: bool


def printed(kernel: Kernel, name: str, *, linkage: str = "static ") -> Printed:
    """A kernel as a C function of this name."""
    return _KernelPrinter(_speakable(replace(kernel, body=blocked(straightened(kernel.body)))), name, linkage).run()


def _speakable(kernel: Kernel) -> Kernel:
    """The kernel with no buffer called as something in C, or as a variable that the printer brings."""
    names = {
        buffer.name: replace(buffer, name=f"{buffer.name}_")
        for buffer in (*kernel.inputs, *kernel.outputs, *kernel.scratch)
        if buffer.name in _TAKEN
    }
    moved = with_buffers(kernel, names)
    inputs, scratch = (tuple(names.get(one.name, one) for one in kind) for kind in (kernel.inputs, kernel.scratch))
    return replace(moved, inputs=inputs, scratch=scratch)


def kernel_sizes(kernel: Kernel) -> tuple[str, ...]:
    """The dynamic sizes a kernel depends on."""
    found: set[str] = set()
    for buffer in (*kernel.inputs, *kernel.outputs, *kernel.scratch):
        for extent in (*buffer.shape, *buffer.steps):
            found |= sizes_in(extent)
    for statement in walk(kernel.body):
        for value in scalars(statement):
            for one in visit(value):
                if isinstance(one, Const) and isinstance(one.value, int):
                    found |= sizes_in(one.value)
        if isinstance(statement, Contraction):
            for extent in (*statement.extents, *statement.reduced):
                found |= sizes_in(extent)
    return tuple(sorted(found))


class _KernelPrinter:
    def __init__(self, kernel: Kernel, name: str, linkage: str) -> None:
        self._kernel = kernel
        self._name = name
        self._linkage = linkage
        self._scalars = ScalarPrinter(lambda buffer: buffer.name)
        self._lines: list[str] = []
        self._can_fail = any(isinstance(statement, Fail) for statement in walk(kernel.body))

    def run(self) -> Printed:
        sizes = kernel_sizes(self._kernel)
        self._body(self._kernel.body, 1)
        result = "int" if self._can_fail else "void"
        parameters = [
            *(f"const {stored_type(one.dtype)} *restrict {one.name}" for one in self._kernel.inputs),
            *(f"{stored_type(one.dtype)} *restrict {one.name}" for one in self._kernel.outputs),
            # If scratch memory were restrict, clang 14 would read it at -O3 before a loop that fills it.
            *(f"{stored_type(one.dtype)} *{one.name}" for one in self._kernel.scratch),
            *(f"const int64_t s_{size}" for size in sizes),
        ]
        names = [one.name for one in (*self._kernel.inputs, *self._kernel.outputs, *self._kernel.scratch)]
        touched, needed = used_buffers(self._kernel), used_sizes(self._kernel)
        unused = [name for name in names if name not in touched]
        unused += [f"s_{size}" for size in sizes if size not in needed]
        self._lines[:0] = [f"{PAD}(void){name};" for name in unused]
        if self._can_fail:
            self._lines.append(f"{PAD}return 0;")
        divided = self._kernel.parts > 1
        if divided:
            parameters.append("const int64_t part")
            self._lines[:0] = self._own_scratch()
        linkage = "static " if divided else self._linkage
        head = f"{linkage}{result} {self._name}({', '.join(parameters) or 'void'})"
        text = "\n".join([*self._comment(), head, "{", *self._lines, "}"]) + "\n"
        prototype = f"{head};"
        if divided:
            prototype, part = self._part(sizes)
            text += part
        return Printed(text, prototype, frozenset(self._scalars.needs), sizes, self._can_fail)

    def _own_scratch(self) -> list[str]:
        """Every part has scratch memory of its own."""
        return [
            f"{PAD}{one.name} += part * {scratch_elements(one.dtype.bits, one.shape)};" for one in self._kernel.scratch
        ]

    def _part(self, sizes: Sequence[str]) -> tuple[str, str]:
        """The function that runs one part of a call: its declaration, with a struct for the arguments, and its text."""
        kernel, name = self._kernel, self._name
        fields = [
            *(f"const {stored_type(one.dtype)} *{one.name};" for one in kernel.inputs),
            *(f"{stored_type(one.dtype)} *{one.name};" for one in (*kernel.outputs, *kernel.scratch)),
            *(f"int64_t s_{size};" for size in sizes),
        ]
        names = [
            *(one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)),
            *(f"s_{one}" for one in sizes),
        ]
        head = f"void {name}_part(const void *call, int64_t part)"
        struct = "\n".join(["typedef struct {", *(f"{PAD}{one}" for one in fields), f"}} {name}_call;"])
        arguments = ", ".join([*(f"c->{one}" for one in names), "part"])
        body = [f"{PAD}const {name}_call *const c = call;", f"{PAD}{name}({arguments});"]
        return f"{struct}\n{head};", "\n".join(["", head, "{", *body, "}"]) + "\n"

    def _comment(self) -> list[str]:
        lines = [*self._kernel.doc]
        lines += [
            f"{buffer.name}: {buffer.dtype.name}[{', '.join(map(repr, buffer.shape))}]"
            for buffer in (*self._kernel.inputs, *self._kernel.outputs)
        ]
        return ["/*", *(f" * {line}" for line in lines), " */"]

    def _line(self, depth: int, text: str) -> None:
        self._lines.append(PAD * depth + text)

    def _body(self, statements: Sequence[Statement], depth: int) -> None:
        text = self._scalars.text
        for statement in statements:
            match statement:
                case For(bind=Bind.LANES):
                    self._in_lanes(statement, depth)
                case For(variable, extent, body, _, bind):
                    first, last = "0", text(extent)
                    if bind is Bind.PART:
                        first, last = share(last, self._kernel.parts)
                    if depth > 1 and last.isdecimal() and _has_choices(body):
                        self._line(depth, _ROLLED)
                    self._line(depth, self._head(variable, first, last))
                    self._scalars.positions.add(variable.name)
                    self._body(body, depth + 1)
                    self._line(depth, "}")
                case While(cond, body):
                    self._line(depth, f"while ({self._scalars.bare(cond)}) {{")
                    self._body(body, depth + 1)
                    self._line(depth, "}")
                case If(cond, then, otherwise):
                    self._line(depth, f"if ({self._scalars.bare(cond)}) {{")
                    self._body(then, depth + 1)
                    if otherwise:
                        self._line(depth, "} else {")
                        self._body(otherwise, depth + 1)
                    self._line(depth, "}")
                case Let(variable, value):
                    if variable.dtype is INDEX and self._scalars.is_position(value):
                        self._scalars.positions.add(variable.name)
                    self._line(depth, f"const {scalar_type(variable.dtype)} {variable.name} = {text(value)};")
                case Local(variable, value):
                    self._line(depth, f"{scalar_type(variable.dtype)} {variable.name} = {text(value)};")
                case Assign(variable, value):
                    self._line(depth, f"{variable.name} = {text(value)};")
                case Store(buffer, index, value):
                    self._line(depth, self._scalars.store(buffer, self._scalars.offset(buffer, index), value))
                case Fail(reason):
                    self._line(depth, f"return 1; /* {reason} */")
                case Contraction(template=CpuTile() as tile):
                    self._lines += [PAD * depth + line for line in self._tiled(statement, tile)]
                case Contraction(free=()):
                    # No loop gives the accumulator a scope of its own.
                    self._line(depth, "{")
                    self._body(blocked(expanded(statement)), depth + 1)
                    self._line(depth, "}")
                case Contraction():
                    lines = side_by_side(statement, self._scalars)
                    if lines is None:
                        self._body(blocked(expanded(statement)), depth)
                    else:
                        self._lines += [PAD * depth + line for line in lines]

    def _tiled(self, one: Contraction, tile: CpuTile) -> list[str]:
        in_tiles = tiled_bytes if are_bytes(one) else tiled
        return in_tiles(one, tile, self._scalars, self._kernel.parts)

    def _in_lanes(self, loop: For, depth: int) -> None:
        """A loop that gathers values: neighbours go into lanes of their own, which compilers make vectors of."""
        index, extent, found = loop.index.name, self._scalars.text(loop.extent), gathered(loop)
        self._scalars.positions.add(index)
        whole = f"({extent}) / {LANES} * {LANES}"
        if extent.isdecimal():
            whole = str(int(extent) // LANES * LANES)
        lanes = {one.var.name: Var(f"{one.var.name}_lanes[lane]", one.var.dtype) for one in found}
        self._line(depth, "{")
        for one in found:
            self._line(depth + 1, f"{scalar_type(one.var.dtype)} {one.var.name}_lanes[{LANES}];")
        firsts = [f"{lanes[one.var.name].name} = {self._scalars.text(one.first)};" for one in found]
        self._lane_loop(firsts, depth + 1)
        self._line(depth + 1, f"for (int64_t {index}_0 = 0; {index}_0 < {whole}; {index}_0 += {LANES}) {{")
        if _has_choices(loop.body):
            self._line(depth + 2, _IN_VECTORS)
        self._line(depth + 2, f"for (int64_t lane = 0; lane < {LANES}; ++lane) {{")
        used = (one for statement in walk(loop.body) for value in scalars(statement) for one in visit(value))
        if loop.index in used:
            self._line(depth + 3, f"const int64_t {index} = {index}_0 + lane;")
        self._body(renamed(loop.body, lanes), depth + 3)
        self._line(depth + 2, "}")
        self._line(depth + 1, "}")
        if whole != extent:
            self._line(depth + 1, self._head(loop.index, whole, extent))
            self._body(loop.body, depth + 2)
            self._line(depth + 1, "}")
        # By halves: a sum of one after the other would wait for each.
        for one in found:
            half = LANES // 2
            while half:
                low, high = (Var(f"{one.var.name}_lanes[{at}]", one.var.dtype) for at in ("lane", f"lane + {half}"))
                joined = self._scalars.text(replace(one, var=low).joined(high))
                self._line(depth + 1, f"for (int64_t lane = 0; lane < {half}; ++lane) {low.name} = {joined};")
                half //= 2
        first = [Var(f"{one.var.name}_lanes[0]", one.var.dtype) for one in found]
        for one, lane in zip(found, first, strict=True):
            self._line(depth + 1, f"{one.var.name} = {self._scalars.text(one.joined(lane))};")
        self._line(depth, "}")

    def _lane_loop(self, statements: Sequence[str], depth: int) -> None:
        for one in statements:
            self._line(depth, f"for (int64_t lane = 0; lane < {LANES}; ++lane) {one}")

    @staticmethod
    def _head(variable: Var, first: str, last: str) -> str:
        return f"for (int64_t {variable.name} = {first}; {variable.name} < {last}; ++{variable.name}) {{"


def _has_choices(body: Sequence[Statement]) -> bool:
    """Whether statements themselves choose between values, or places."""
    values = (part for statement in body for value in scalars(statement) for part in visit(value))
    return any(isinstance(part, Select) for part in values)
