"""How groups of a team exchange values in GLSL: through words which are zero until a value is there.

So no fence is needed, and no barrier of several groups.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.dtypes import DType
from openinfer.loops.ir import Exchange, Leave, Scalar, Statement
from openinfer.loops.teams import digits_of, row_words
from openinfer.synth.targets.cstyle.templates import KernelWriter, PrintStatement
from openinfer.synth.targets.vulkan.thread_words import GLSL_THREADS
from openinfer.synth.targets.vulkan.waiting import LEAVE, POST, POSTED, WORD_DIGITS


def exchange(one: Exchange, writer: KernelWriter, depth: int) -> None:
    """Prints an exchange: the first thread posts the values of its group; others wait for those of one group each."""
    printed, groups = _Printed(one, writer), one.words.groups
    writer.line(depth, "{")
    writer.line(depth + 1, f"const int oi_lane = {GLSL_THREADS.number};")
    writer.line(depth + 1, f"const uint oi_at = uint({writer.scalars.text(one.row)}) * {row_words(one.words)}u;")
    for condition, lines in (
        ("oi_lane == 0", printed.posts(f"{GLSL_THREADS.group} % {groups}u")),
        (f"oi_lane < {groups}", printed.takes("oi_lane")),
    ):
        writer.line(depth + 1, f"if ({condition}) {{")
        for line in lines:
            writer.line(depth + 2, line)
        writer.line(depth + 1, "}")
    writer.line(depth + 1, GLSL_THREADS.shared_barrier)
    writer.line(depth, "}")


def leave(one: Leave, writer: KernelWriter, depth: int) -> None:
    """Prints that a group needs the words of a row no longer."""
    row = f"uint({writer.scalars.text(one.row)}) * {row_words(one.words)}u"
    writer.line(depth, f"{LEAVE}({row}, {one.words.count}u, {one.words.groups}u);")


EXCHANGES: dict[type[Statement], PrintStatement] = {Exchange: exchange, Leave: leave}
"""The statements of teams, and how they are printed."""


@dataclass(frozen=True)
class _Printed:
    one: Exchange
    writer: KernelWriter

    def posts(self, group: str) -> Iterator[str]:
        """What the first thread of a group does."""
        yield f"const uint oi_to = oi_at + {group} * {self._each}u;"
        for place, value, dtype in self._parts():
            text = self.writer.scalars.text(value)
            for number, word in enumerate(_words(dtype, text)):
                yield f"{POST}(oi_to + {place + number * WORD_DIGITS}u, {word});"

    def takes(self, group: str) -> Iterator[str]:
        """What a thread with the number of a group does."""
        yield f"const uint oi_from = oi_at + uint({group}) * {self._each}u;"
        for (place, _, dtype), buffer in zip(self._parts(), self.one.memory, strict=True):
            places = [place + number * WORD_DIGITS for number in range(digits_of(dtype) // WORD_DIGITS)]
            words = [f"{POSTED}(oi_from + {at}u)" for at in places]
            yield f"{buffer.name}[{group}] = {_value(dtype, self.writer.scalars.type_of(dtype), words)};"

    @property
    def _each(self) -> int:
        """The words of a group."""
        return sum(digits_of(buffer.dtype) for buffer in self.one.memory)

    def _parts(self) -> Iterator[tuple[int, Scalar, DType]]:
        """The values, each with the place of its first word behind that of the group."""
        place = self.one.place
        for value, buffer in zip(self.one.values, self.one.memory, strict=True):
            yield place, value, buffer.dtype
            place += digits_of(buffer.dtype)


def _words(dtype: DType, value: str) -> tuple[str, ...]:
    """A value as words of 32 bits, the lowest first."""
    if dtype.bits == 64:
        halves = GLSL_THREADS.of_double if dtype.kind == "float" else GLSL_THREADS.of_long
        return tuple(one.format(value) for one in halves)
    return (GLSL_THREADS.of_float.format(value) if dtype.kind == "float" else f"uint32_t({value})",)


def _value(dtype: DType, kind: str, words: list[str]) -> str:
    """The inverse."""
    if dtype.bits == 64:
        made = GLSL_THREADS.to_double if dtype.kind == "float" else f"{kind}({GLSL_THREADS.to_long})"
        return made.format(*words)
    return GLSL_THREADS.to_float.format(*words) if dtype.kind == "float" else f"{kind}({words[0]})"
