"""What threads do, in the words of a language: who they are, where they wait, and accesses of several elements at once.

Languages differ in few words: conversions to a type are written alike in all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from openinfer.dtypes import DType
from openinfer.loops.ir import (
    Binary,
    Bind,
    Combine,
    Const,
    For,
    GroupBarrier,
    ScalarVar,
    Statement,
    WideLoad,
    WideStore,
)
from openinfer.synth.targets.cstyle.integers import INTEGERS
from openinfer.synth.targets.cstyle.templates import KernelWriter, PrintLoop, PrintStatement


@dataclass(frozen=True)
class ThreadWords:
    """The words in which languages differ. Templates have places, as in ``str.format``."""

    types: Mapping[str, str]
    """The types of values, by compute dtype."""
    thread: str
    """The number of a thread among those of all groups."""
    group: str
    """The number of a group."""
    number: str
    """The number of a thread in its group: neighbours in a subgroup are neighbours in the group."""
    lane: str
    """The number of a thread in its subgroup, without a sign."""
    barrier: str
    shared_barrier: str
    """That after which only memory of the group is seen as others have written it."""
    exact: str
    """What stands before the declaration of a float that is computed as it is written."""
    shuffled: Callable[[DType, str, int, int], str]
    """A value of the thread whose number differs in one bit, among so many neighbours that do the same."""
    place: str
    """A place in memory, as a number without a sign."""
    access: Mapping[int, str]
    """So many words of a buffer at a place: ``{name}`` and ``{at}``."""
    wide: Mapping[int, str]
    """The type of so many words."""
    made: str
    """Several words as one: their type, and the words."""
    word: tuple[str, ...]
    """What stands behind several words to mean one of them."""
    of_float: str
    """A float as a word, and a word as a float."""
    to_float: str
    of_double: tuple[str, str]
    """The lower and the higher word of a double; and a double of both."""
    to_double: str
    of_long: tuple[str, str]
    """The same of an integer of 64 bits, which has no sign when it is made."""
    to_long: str
    ahead: Mapping[int, str] = field(default_factory=dict)
    """The same as ``access``, where a compiler may not put it off."""
    rounded: Mapping[int, str] = field(default_factory=lambda: {1: "oi_pair_bf16"})
    """The functions that make some words of twice as many numbers in bf16, by how many; of one word at least."""

    def loops(self) -> dict[Bind, PrintLoop]:
        """How loops are printed."""
        return {Bind.THREAD: ThreadPrinter(self).thread, Bind.GROUP: ThreadPrinter(self).group}

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
        """Threads of the last group may have no iteration."""
        _place(loop, self.words.thread, writer, depth)
        writer.line(depth, f"if ({loop.index.name} < {writer.scalars.text(loop.extent)}) {{")
        writer.body(loop.body, depth + 1)
        writer.line(depth, "}")

    def group(self, loop: For, writer: KernelWriter, depth: int) -> None:
        """As many groups as there are iterations are launched, and a group has as many threads as the loop inside."""
        _place(loop, self.words.group, writer, depth)
        is_known = isinstance(loop.extent, Const) and type(loop.extent.value) is int
        if not is_known:
            writer.line(depth, f"if ({loop.index.name} < {writer.scalars.text(loop.extent)}) {{")
        inside = depth if is_known else depth + 1
        for one in loop.body:
            if isinstance(one, For) and one.bind is Bind.THREAD:
                _place(one, self.words.number, writer, inside)
                writer.body(one.body, inside)
            else:
                writer.body((one,), inside)
        if not is_known:
            writer.line(depth, "}")

    # --- threads that meet ----------------------------------------------------------------------------------------

    def barrier(self, one: GroupBarrier, writer: KernelWriter, depth: int) -> None:
        """The group sees what is written to memory, too; that others see it at once would take long."""
        writer.line(depth, self.words.shared_barrier if one.is_shared else self.words.barrier)

    def combine(self, one: Combine, writer: KernelWriter, depth: int) -> None:
        """Values of the threads of a subgroup become one, in all of them."""
        mask = 1
        while mask < one.width:
            writer.line(depth, "{")
            lines = self._joined_alike if _is_symmetric(one) else self._joined_in_order
            for line in lines(one, mask, writer):
                writer.line(depth + 1, line)
            writer.line(depth, "}")
            mask *= 2

    def _joined_alike(self, one: Combine, mask: int, writer: KernelWriter) -> Iterator[str]:
        words = self.words
        for var, other in zip(one.variables, one.others, strict=True):
            shuffled = words.shuffled(var.dtype, var.name, mask, one.width)
            yield f"const {words.types[var.dtype.name]} {other.name} = {shuffled};"
        for var, value in zip(one.variables, one.values, strict=True):
            yield f"{var.name} = {writer.scalars.text(value)};"

    def _joined_in_order(self, one: Combine, mask: int, writer: KernelWriter) -> Iterator[str]:
        """The first of two threads is the one without the bit, in both of them."""
        words = self.words
        yield f"const bool is_second = ({words.lane} & {mask}u) != 0u;"
        for var, other in zip(one.variables, one.others, strict=True):
            kind, name = words.types[var.dtype.name], var.name
            yield f"const {kind} own_{name} = {name}, got_{name} = {words.shuffled(var.dtype, name, mask, one.width)};"
            yield f"{name} = is_second ? got_{name} : own_{name};"
            yield f"const {kind} {other.name} = is_second ? own_{name} : got_{name};"
        for var, value in zip(one.variables, one.values, strict=True):
            exact = words.exact if var.dtype.kind == "float" else ""
            yield f"{exact}const {words.types[var.dtype.name]} new_{var.name} = {writer.scalars.text(value)};"
        for var in one.variables:
            yield f"{var.name} = new_{var.name};"

    # --- several elements at once ---------------------------------------------------------------------------------

    def wide_load(self, one: WideLoad, writer: KernelWriter, depth: int) -> None:
        """Neighbours in memory become variables."""
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
            writer.line(depth, f"const {words.types[dtype.compute.name]} {var.name} = {value};")

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
                else f"{words.types[dtype.name]}({words.to_long})".format(*pair)
            )
        if dtype.name == "f32":
            return words.to_float.format(word)
        if dtype.name == "bf16":
            return words.to_float.format(f"{word} << 16" if shift == 0 else f"{word} & 0xffff0000u")
        code = f"{word} >> {shift}u" if shift else word
        if dtype.is_packed:
            return self._field(dtype, f"(({code}) & {(1 << dtype.bits) - 1}u)")
        if dtype.is_small_float:
            return f"{writer.scalars.need(f'oi_from_{dtype.name}')}({INTEGERS[f'u{dtype.bits}']}({code}))"
        if dtype.kind == "bool":
            return f"(({code}) & 255u) != 0u"
        return f"{words.types[dtype.name]}({code})"

    def _field(self, dtype: DType, code: str) -> str:
        """The number that bits of a word are."""
        kind, half = self.words.types[dtype.compute.name], 1 << (dtype.bits - 1)
        if dtype.values is not None and dtype.bits == 1:
            return f"{kind}(2 * int32_t({code}) - 1)"
        return f"{kind}((int32_t({code}) ^ {half}) - {half})" if dtype.kind == "int" else f"{kind}({code})"

    def wide_store(self, one: WideStore, writer: KernelWriter, depth: int) -> None:
        """Variables become neighbours in memory."""
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
        """What some values are in an access of some words."""
        dtype, words = one.buffer.dtype, self.words
        is_rounded = dtype.name == "bf16" and not one.has_words
        if is_rounded and size in words.rounded:
            return f"{writer.scalars.need(words.rounded[size])}({', '.join(names)})"
        if is_rounded:
            pairs = zip(names[::2], names[1::2], strict=True)
            texts = [f"{writer.scalars.need(words.rounded[1])}({low}, {high})" for low, high in pairs]
        elif one.has_words:
            texts = [*names]
        elif dtype.bits == 64:
            halves = words.of_double if dtype.kind == "float" else words.of_long
            texts = [half.format(name) for name in names for half in halves]
        else:
            per = 32 // dtype.bits
            codes = [self._code(dtype, name, writer) for name in names]
            codes = [f"{code} << {at % per * dtype.bits}u" if at % per else code for at, code in enumerate(codes)]
            texts = [" | ".join(codes[at : at + per]) for at in range(0, len(codes), per)]
        return words.made.format(type=words.wide[size], parts=", ".join(texts)) if size > 1 else texts[0]

    def _code(self, dtype: DType, name: str, writer: KernelWriter) -> str:
        """The bits of a value in a word; nothing is in the others."""
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


def _access_size(words: int) -> int:
    """The words of each of the accesses that make up some."""
    return 4 if words % 4 == 0 else 2 if words % 2 == 0 else 1


def _is_symmetric(one: Combine) -> bool:
    """Whether each variable is joined with the other one alone, and it does not matter which comes first."""
    return all(
        isinstance(value, Binary)
        and value.op in ("add", "mul", "min", "max", "and", "or", "xor")
        and {value.left, value.right} == {var, other}
        for var, other, value in zip(one.variables, one.others, one.values, strict=True)
    )
