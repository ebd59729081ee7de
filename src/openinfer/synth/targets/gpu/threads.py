"""What threads do, in the words of a language: thread indices, barriers, subgroup reductions, and wide accesses.

Languages differ in few words: type conversions are written the same way in all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from openinfer.dtypes import DType
from openinfer.loops.ir import (
    Binary,
    Bind,
    Combine,
    Const,
    For,
    GroupBarrier,
    Scalar,
    ScalarVar,
    Statement,
    WideLoad,
    WideStore,
)
from openinfer.loops.rewrite import replaced
from openinfer.synth.targets.cstyle.code import ExprText, Rank
from openinfer.synth.targets.cstyle.templates import KernelWriter, PrintLoop, PrintStatement


@dataclass(frozen=True)
class ThreadWords:
    """The words in which languages differ. Templates have fields, as in ``str.format``."""

    thread: str
    """The index of a thread among the threads of all groups."""
    group: str
    """The index of a group."""
    number: str
    """The index of a thread in its group: neighbours in a subgroup are neighbours in the group."""
    lane: str
    """The lane of a thread in its subgroup, as an unsigned number."""
    barrier: str
    shared_barrier: str
    """A barrier that only orders accesses to shared memory of the group."""
    exact: str
    """A qualifier for declarations of floats that are computed exactly as written."""
    shuffled: Callable[[DType, str, int, int], str]
    """The value of a variable, by dtype and name, in the lane that differs in one bit, given as a mask.

    The last argument is the number of neighbouring lanes that do the same.
    """
    place: str
    """A position in memory, as an unsigned number."""
    access: Mapping[int, str]
    """An access to words of a buffer, by their count: ``{name}`` at ``{at}``."""
    wide: Mapping[int, str]
    """The type of several words, by their count."""
    made: str
    """Several words as one value: ``{type}``, and the words as ``{parts}``."""
    word: tuple[str, ...]
    """The suffixes that select one of several words."""
    of_float: str
    """A float as a word; ``to_float`` is the inverse."""
    to_float: str
    of_double: tuple[str, str]
    """The low and the high word of a double; ``to_double`` is the inverse."""
    to_double: str
    of_long: tuple[str, str]
    """The same for an integer of 64 bits; ``to_long`` makes an unsigned one."""
    to_long: str
    ahead: Mapping[int, str] = field(default_factory=dict)
    """Like ``access``, for loads that a compiler must not delay."""
    rounded: Mapping[int, str] = field(default_factory=lambda: {1: "oi_pair_bf16"})
    """Functions that pack floats into words, two to a word as bf16, by the count of words; at least for one word."""
    near: Mapping[int, str] = field(default_factory=dict)
    """The same, if numbers halfway between two of bf16 may become either."""
    of_halves: tuple[str, ...] = ()
    """The two f16 numbers in a word, if a device converts them itself; ``to_halves`` packs two floats."""
    to_halves: str = ""

    def loops(self) -> dict[Bind, PrintLoop]:
        """How loops are printed."""
        own = ThreadPrinter(self)
        return {Bind.THREAD: own.thread, Bind.GROUP: own.group, Bind.TEAM: own.team}

    def statements(self) -> dict[type[Statement], PrintStatement]:
        """How statements are printed."""
        own = ThreadPrinter(self)
        return {
            GroupBarrier: own.barrier,
            Combine: own.combine,
            WideLoad: own.wide_load,
            WideStore: own.wide_store,
        }


@dataclass(frozen=True)
class ThreadPrinter:
    """Prints what threads do."""

    words: ThreadWords

    # --- loops ----------------------------------------------------------------------------------------------------

    def thread(self, loop: For, writer: KernelWriter, depth: int) -> None:
        """Prints a loop over threads, with a bounds check: threads of the last group may have no iteration."""
        _place(loop, self.words.thread, writer, depth)
        writer.line(depth, f"if ({loop.index.name} < {writer.scalars.text(loop.extent)}) {{")
        writer.body(loop.body, depth + 1)
        writer.line(depth, "}")

    def group(self, loop: For, writer: KernelWriter, depth: int) -> None:
        """Prints a loop over groups: one group per iteration, with one thread per iteration of the loop inside."""

        def body(inside: int) -> None:
            for one in loop.body:
                if isinstance(one, For) and one.bind is Bind.THREAD:
                    _place(one, self.words.number, writer, inside)
                    writer.body(one.body, inside)
                else:
                    writer.body((one,), inside)

        self._groups(loop, writer, depth, body)

    def _groups(self, loop: For, writer: KernelWriter, depth: int, body: Callable[[int], None]) -> None:
        """Prints what a group or a team does, if there is an iteration for it."""
        _place(loop, self.words.group, writer, depth)
        is_known = isinstance(loop.extent, Const) and type(loop.extent.value) is int
        if is_known:
            body(depth)
            return
        writer.line(depth, f"if ({loop.index.name} < {writer.scalars.text(loop.extent)}) {{")
        body(depth + 1)
        writer.line(depth, "}")

    def team(self, loop: For, writer: KernelWriter, depth: int) -> None:
        """Prints a loop over teams: adjacent groups are those of one."""
        (groups,) = loop.body
        assert isinstance(groups, For)
        assert isinstance(groups.extent, Const)
        count, own = groups.extent.value, self.words.group
        team = ThreadPrinter(replace(self.words, group=f"{own} / {count}u"))
        inside = ThreadPrinter(replace(self.words, group=f"{own} % {count}u"))
        team._groups(loop, writer, depth, lambda inner: inside.group(groups, writer, inner))

    # --- synchronization ------------------------------------------------------------------------------------------

    def barrier(self, one: GroupBarrier, writer: KernelWriter, depth: int) -> None:
        """Unless ``is_shared``, the group sees global writes too; other groups see them only after the launch."""
        writer.line(depth, self.words.shared_barrier if one.is_shared else self.words.barrier)

    def combine(self, one: Combine, writer: KernelWriter, depth: int) -> None:
        """Reduces values over threads of a subgroup; all of them get the result."""
        mask = 1
        while mask < one.width:
            writer.line(depth, "{")
            assert _is_symmetric(one) or not one.before
            lines = self._joined_alike if _is_symmetric(one) else self._joined_in_order
            for line in lines(one, mask, writer):
                writer.line(depth + 1, line)
            writer.line(depth, "}")
            mask *= 2

    def _joined_alike(self, one: Combine, mask: int, writer: KernelWriter) -> Iterator[str]:
        words = self.words
        for var, other in zip(one.variables, one.others, strict=True):
            shuffled = words.shuffled(var.dtype, var.name, mask, one.width)
            yield f"const {writer.scalars.type_of(var.dtype)} {other.name} = {shuffled};"
        for var, other, before, value in zip(
            one.variables, one.others, one.before, one.values, strict=bool(one.before)
        ):
            parts: dict[Scalar, Scalar] = {var: other, other: before}
            joined = writer.scalars.text(replaced(value, parts))
            yield f"{before.name} = ({words.lane} & {mask}u) != 0u ? {joined} : {before.name};"
        for var, value in zip(one.variables, one.values, strict=True):
            yield f"{var.name} = {writer.scalars.text(value)};"

    def _joined_in_order(self, one: Combine, mask: int, writer: KernelWriter) -> Iterator[str]:
        """Both threads of a pair take the one without the bit as the first."""
        words = self.words
        yield f"const bool is_second = ({words.lane} & {mask}u) != 0u;"
        for var, other in zip(one.variables, one.others, strict=True):
            kind, name = writer.scalars.type_of(var.dtype), var.name
            yield f"const {kind} own_{name} = {name}, got_{name} = {words.shuffled(var.dtype, name, mask, one.width)};"
            yield f"{name} = is_second ? got_{name} : own_{name};"
            yield f"const {kind} {other.name} = is_second ? own_{name} : got_{name};"
        for var, value in zip(one.variables, one.values, strict=True):
            exact = words.exact if var.dtype.kind == "float" else ""
            yield f"{exact}const {writer.scalars.type_of(var.dtype)} new_{var.name} = {writer.scalars.text(value)};"
        for var in one.variables:
            yield f"{var.name} = new_{var.name};"

    # --- wide accesses --------------------------------------------------------------------------------------------

    def wide_load(self, one: WideLoad, writer: KernelWriter, depth: int) -> None:
        """Loads contiguous elements into variables."""
        dtype, name, words = one.buffer.dtype, one.variables[0].name, self.words
        count = one.count * dtype.bits // 32
        size = _access_size(count)
        accesses = {**words.access, **words.ahead} if one.is_ahead else words.access
        at = self._place_of(one, size * 32 // dtype.bits, writer) if dtype.bits <= 32 * size else ""
        for number in range(count // size):
            access = accesses[size].format(name=one.buffer.name, at=at if count == size else f"{at} + {number}u")
            writer.line(depth, f"const {words.wide[size]} {name}_w{number} = {access};")
        texts = [f"{name}_w{word // size}" + (words.word[word % size] if size > 1 else "") for word in range(count)]
        for number, var in enumerate(one.variables):
            if one.has_words:
                writer.line(depth, f"const uint32_t {var.name} = {texts[number]};")
                continue
            value = self._element(dtype, texts, number * dtype.bits, writer)
            writer.line(depth, f"const {writer.scalars.type_of(dtype)} {var.name} = {value};")

    def _place_of(self, one: WideLoad | WideStore, per: int, writer: KernelWriter) -> str:
        at = self.words.place.format(writer.scalars.offset(one.buffer, one.index))
        return f"{at} / {per}u" if per > 1 else at

    def _element(self, dtype: DType, texts: Sequence[str], bit: int, writer: KernelWriter) -> str:
        """An element in its compute type, from the words that hold it."""
        words, word, shift = self.words, texts[bit // 32], bit % 32
        if dtype.bits == 64:
            pair = word, texts[bit // 32 + 1]
            is_float = dtype.kind == "float"
            return (
                words.to_double.format(*pair)
                if is_float
                else f"{writer.scalars.type_of(dtype)}({words.to_long})".format(*pair)
            )
        if dtype.name == "f32":
            return words.to_float.format(word)
        if dtype.name == "bf16":
            return words.to_float.format(f"{word} << 16" if shift == 0 else f"{word} & 0xffff0000u")
        if dtype.name == "f16" and words.of_halves:
            return words.of_halves[shift // 16].format(word)
        code = f"{word} >> {shift}u" if shift else word
        if dtype.is_packed:
            return _field(dtype, writer.scalars.type_of(dtype), f"(({code}) & {(1 << dtype.bits) - 1}u)")
        if dtype.is_small_float:
            writer.scalars.types.add(f"u{dtype.bits}")
            unit = writer.scalars.dialect.stored_type(dtype)
            return f"{writer.scalars.need(f'oi_from_{dtype.name}')}({unit}({code}))"
        if dtype.kind == "bool":
            return f"(({code}) & 255u) != 0u"
        if dtype.name in writer.scalars.dialect.wraps:
            return writer.scalars.converted(dtype, ExprText(code, Rank.CHOICE)).text
        return f"{writer.scalars.type_of(dtype)}({code})"

    def wide_store(self, one: WideStore, writer: KernelWriter, depth: int) -> None:
        """Stores variables in contiguous elements."""
        dtype, words = one.buffer.dtype, self.words
        count = one.count * dtype.bits // 32
        size = _access_size(count)
        at = self._place_of(one, size * 32 // dtype.bits, writer)
        names = [value.name for value in one.values if isinstance(value, ScalarVar)]
        assert len(names) == len(one.values)
        for number in range(count // size):
            own = names[number * len(names) * size // count : (number + 1) * len(names) * size // count]
            value = self._words_of(one, own, size, writer)
            access = words.access[size].format(name=one.buffer.name, at=at if count == size else f"{at} + {number}u")
            writer.line(depth, f"{access} = {value};")

    def _words_of(self, one: WideStore, names: Sequence[str], size: int, writer: KernelWriter) -> str:
        """Packs values into the words of one access."""
        dtype, words = one.buffer.dtype, self.words
        is_rounded = dtype.name == "bf16" and not one.has_words
        rounded = {**words.rounded, **words.near} if one.is_near else words.rounded
        if is_rounded and size in rounded:
            return f"{writer.scalars.need(rounded[size])}({', '.join(names)})"
        if is_rounded:
            pairs = zip(names[::2], names[1::2], strict=True)
            texts = [f"{writer.scalars.need(rounded[1])}({low}, {high})" for low, high in pairs]
        elif one.has_words:
            texts = [*names]
        elif dtype.name == "f16" and words.to_halves:
            texts = [words.to_halves.format(*pair) for pair in zip(names[::2], names[1::2], strict=True)]
        elif dtype.bits == 64:
            writer.scalars.type_of(dtype)
            halves = words.of_double if dtype.kind == "float" else words.of_long
            texts = [half.format(name) for name in names for half in halves]
        else:
            per = 32 // dtype.bits
            codes = [self._code(dtype, name, writer) for name in names]
            codes = [f"{code} << {at % per * dtype.bits}u" if at % per else code for at, code in enumerate(codes)]
            texts = [" | ".join(codes[at : at + per]) for at in range(0, len(codes), per)]
        return words.made.format(type=words.wide[size], parts=", ".join(texts)) if size > 1 else texts[0]

    def _code(self, dtype: DType, name: str, writer: KernelWriter) -> str:
        """The bits of a value in a word; the other bits are 0."""
        if dtype.name == "f32":
            return self.words.of_float.format(name)
        if dtype.is_small_float:
            return f"uint32_t({writer.scalars.need(f'oi_to_{dtype.name}')}({name}))"
        if dtype.kind == "bool" or (dtype.values is not None and dtype.bits == 1):
            return f"({name if dtype.kind == 'bool' else f'{name} > 0'} ? 1u : 0u)"
        return f"(uint32_t({name}) & {(1 << dtype.bits) - 1}u)" if dtype.bits < 32 else f"uint32_t({name})"


def _place(loop: For, builtin: str, writer: KernelWriter, depth: int) -> None:
    name, most = loop.index.name, writer.scalars.widths.interval(loop.extent)[1]
    kind = writer.scalars.counts(loop.index, most=most)
    writer.scalars.ranges[name] = (0, max(most - 1, 0))
    writer.line(depth, f"const {kind} {name} = {kind}({builtin});")


def _field(dtype: DType, kind: str, code: str) -> str:
    """The value of a packed element in its compute type, from its bits."""
    half = 1 << (dtype.bits - 1)
    if dtype.values is not None and dtype.bits == 1:
        return f"{kind}(2 * int32_t({code}) - 1)"
    return f"{kind}((int32_t({code}) ^ {half}) - {half})" if dtype.kind == "int" else f"{kind}({code})"


def _access_size(words: int) -> int:
    """The words per access, for accesses of equal size that cover ``words``."""
    return 4 if words % 4 == 0 else 2 if words % 2 == 0 else 1


def _is_symmetric(one: Combine) -> bool:
    """Whether each variable is only combined with its counterpart, by an operation that commutes."""
    return all(
        isinstance(value, Binary)
        and value.op in ("add", "mul", "min", "max", "and", "or", "xor")
        and {value.left, value.right} == {var, other}
        for var, other, value in zip(one.variables, one.others, one.values, strict=True)
    )
