"""Kernels as functions of a C-family language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openinfer.loops.coordinates import coordinate_ranges
from openinfer.loops.dim import sizes_in
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Alloc,
    Buffer,
    Combine,
    Const,
    Contraction,
    Exchange,
    Fail,
    For,
    GroupBarrier,
    If,
    Kernel,
    Leave,
    Let,
    Local,
    Ready,
    Select,
    SetLocal,
    Space,
    Statement,
    Store,
    TileStep,
    Unfailed,
    While,
    WideLoad,
    WideStore,
    scalars,
    visit,
    walk,
)
from openinfer.loops.locals import local_ranges
from openinfer.loops.rewrite import map_statements, with_buffers
from openinfer.loops.used import used_buffers, used_sizes
from openinfer.synth.targets.cstyle.code import Rank
from openinfer.synth.targets.cstyle.dialect import Dialect, KernelSignature
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.cstyle.templates import PLAIN, Templates
from openinfer.synth.targets.cstyle.widths import narrow_sizes

PAD = "    "
_DECLARED = (Space.OWN, Space.GROUP)
"""Memory that kernels declare themselves."""


@dataclass(frozen=True)
class Printed:
    """A kernel as text: its definition, the support functions it needs, the sizes it takes, whether it can fail."""

    text: str
    prototype: str
    """Its declaration in a header."""
    doc: tuple[str, ...]
    """What it computes, and with which algorithms."""
    parameters: tuple[Buffer, ...]
    """Its inputs and outputs, in the kernel's order, with their names in the text."""
    unused: tuple[str, ...]
    """The parameters that it does not use."""
    needs: frozenset[Need]
    sizes: tuple[str, ...]
    can_fail: bool
    types: frozenset[str] = frozenset()
    """The dtypes whose types its text names, or whose numbers it has; ``index`` is that of wide positions."""
    memory: tuple[Buffer, ...] = ()
    """The memory that its text names: parameters and scratch memory that it uses, and memory that it declares."""
    exchanges: bool = False
    """Whether threads of a subgroup read each other's values."""


def printed(
    kernel: Kernel,
    name: str,
    dialect: Dialect,
    templates: Templates = PLAIN,
    *,
    parts: int = 1,
    bounds: Mapping[str, int] | None = None,
) -> Printed:
    """Prints a kernel as a function called ``name``, for calls that run it in ``parts`` parts.

    ``bounds`` are those of dynamic sizes.
    """
    whole = _hoisted(kernel)
    named = _renamed(templates.prepared(whole), dialect.reserved | templates.names)
    return KernelPrinter(named, dialect, templates, parts, bounds or {}).run(name)


def _hoisted(kernel: Kernel) -> Kernel:
    """The kernel with its allocations hoisted to the top: memory is a parameter, which iterations use in turn."""
    body = map_statements(kernel.body, lambda one: () if isinstance(one, Alloc) else (one,))
    return replace(kernel, body=(*map(Alloc, kernel.scratch), *body))


def _renamed(kernel: Kernel, taken: frozenset[str]) -> Kernel:
    """The kernel, with buffers renamed that clash with a name in the language or with a variable of the templates."""
    names = {
        buffer.name: replace(buffer, name=f"{buffer.name}_")
        for buffer in (*kernel.inputs, *kernel.outputs, *kernel.scratch)
        if buffer.name in taken
    }
    return replace(with_buffers(kernel, names), inputs=tuple(names.get(one.name, one) for one in kernel.inputs))


def kernel_sizes(kernel: Kernel) -> tuple[str, ...]:
    """The dynamic sizes that a kernel depends on."""
    found: set[str] = set()
    for buffer in (*kernel.inputs, *kernel.outputs, *kernel.scratch):
        for extent in (*buffer.shape, *buffer.actual_strides):
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


class KernelPrinter:
    """Prints the statements of one kernel; it is the ``KernelWriter`` of the templates."""

    def __init__(
        self, kernel: Kernel, dialect: Dialect, templates: Templates, parts: int, bounds: Mapping[str, int]
    ) -> None:
        self._kernel = kernel
        self._dialect = dialect
        self._templates = templates
        self._lines: list[str] = []
        self._notes: list[str] = []
        self.scalars = ScalarPrinter(dialect, lambda buffer: buffer.name)
        if dialect.narrow is not None:
            self.scalars.widths.sizes = narrow_sizes(kernel, bounds)
            self.scalars.widths.coordinates = coordinate_ranges(kernel.body)
        found = local_ranges(kernel.body)
        if any(isinstance(one, Contraction) for one in walk(kernel.body)):
            found.pop(ACCUMULATOR, None)  # a contraction that is printed later has one of the same name
        self.scalars.widths.locals = found
        self.parts = parts

    def run(self, name: str) -> Printed:
        """The kernel as a function called ``name``."""
        self.body(self._kernel.body, 1)
        signature = self._signature(name)
        has_wide = self.scalars.widths.names_wider or not signature.narrow_sizes.issuperset(signature.sizes)
        framed = self._dialect.frame(self._dialect, signature, self._lines)
        return Printed(
            framed.definition,
            framed.declaration,
            tuple(dict.fromkeys((*self._kernel.doc, *self._notes))),
            (*signature.inputs, *signature.outputs),
            signature.unused,
            frozenset(self.scalars.needs),
            signature.sizes,
            signature.can_fail,
            frozenset(self.scalars.types) | ({INDEX.name} if has_wide else set()),
            tuple(one for one in signature.memory if one.space in _DECLARED or one.name not in signature.unused),
            any(isinstance(one, Combine) and one.width > 1 for one in walk(self._kernel.body)),
        )

    def _signature(self, name: str) -> KernelSignature:
        kernel, sizes = self._kernel, kernel_sizes(self._kernel)
        touched, needed = used_buffers(kernel), used_sizes(kernel)
        memory = [one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch) if one.name not in touched]
        return KernelSignature(
            name,
            kernel.inputs,
            kernel.outputs,
            kernel.scratch,
            sizes,
            narrow_sizes=frozenset(self.scalars.widths.sizes) & frozenset(sizes),
            unused=(*memory, *(f"s_{size}" for size in sizes if size not in needed)),
            can_fail=kernel.can_fail,
            parts=self.parts,
        )

    # --- what templates use ---------------------------------------------------------------------------------------

    def line(self, depth: int, text: str) -> None:
        """Adds a line."""
        self._lines.append(PAD * depth + text)

    def note(self, algorithm: str) -> None:
        """Names an algorithm in the kernel's documentation."""
        self._notes.append(algorithm)

    def body(self, statements: Sequence[Statement], depth: int) -> None:
        """Prints statements, one after the other."""
        for statement in statements:
            self._statement(statement, depth)

    def loop(self, loop: For, first: str, last: str, depth: int) -> None:
        """Prints a plain loop over some of the iterations."""
        name, most = loop.index.name, max(self.scalars.widths.interval(loop.extent)[1], 0)
        kind = self.scalars.counts(loop.index, most=most)
        self.scalars.ranges[name] = (0, max(most - 1, 0))
        self.line(depth, f"for ({kind} {name} = {first}; {name} < {last}; ++{name}) {{")
        self.body(loop.body, depth + 1)
        self.line(depth, "}")

    # --- statements -----------------------------------------------------------------------------------------------

    def _statement(self, statement: Statement, depth: int) -> None:
        match statement:
            case For():
                self._for(statement, depth)
            case While(cond, body):
                self.line(depth, f"while ({self.scalars.text(cond)}) {{")
                self.body(body, depth + 1)
                self.line(depth, "}")
            case If(cond, then, otherwise):
                self.line(depth, f"if ({self.scalars.text(cond)}) {{")
                self._branch(then, depth + 1, is_choice=bool(otherwise))
                if otherwise:
                    self.line(depth, "} else {")
                    self._branch(otherwise, depth + 1, is_choice=True)
                self.line(depth, "}")
            case Let():
                self.line(depth, self.scalars.constant(statement))
            case Local():
                self.line(depth, self.scalars.variable(statement))
            case SetLocal():
                self.line(depth, self.scalars.assigned(statement))
            case Store(buffer, index, value):
                self.line(depth, self.scalars.store(buffer, self.scalars.offset(buffer, index), value))
            case Fail(reason):
                self.line(depth, self._dialect.fail.format(reason=reason))
            case Contraction():
                self._templates.contraction(statement, self, depth)
            case GroupBarrier() | Exchange() | Leave() | Ready() | Unfailed() | Combine() | TileStep():
                self._templates.statements[type(statement)](statement, self, depth)
            case WideLoad() | WideStore():
                self._templates.statements[type(statement)](statement, self, depth)

    def _for(self, loop: For, depth: int, *, is_choice: bool = False) -> None:
        """A loop; ``is_choice`` says that it is one of two branches, which some compilers must not merge."""
        template = self._templates.loops.get(loop.bind) if loop.bind is not None else None
        if template is not None:
            template(loop, self, depth)
            return
        last = self.scalars.code(loop.extent).inside(Rank.SUM)
        if self._dialect.rolled and depth > 1 and last.isdecimal() and (is_choice or has_choices(loop.body)):
            self.line(depth, self._dialect.rolled)
        self.loop(loop, "0", last, depth)

    def _branch(self, body: Sequence[Statement], depth: int, *, is_choice: bool) -> None:
        for statement in body:
            if isinstance(statement, For):
                self._for(statement, depth, is_choice=is_choice)
            else:
                self._statement(statement, depth)


def has_choices(body: Sequence[Statement]) -> bool:
    """Whether statements, but not those nested in them, select between values or indices."""
    values = (part for statement in body for value in scalars(statement) for part in visit(value))
    return any(isinstance(part, Select) for part in values)
