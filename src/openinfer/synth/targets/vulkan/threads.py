"""How GLSL says what threads do: who they are, where they wait, and accesses of several elements at once."""

from collections.abc import Iterator, Mapping, Sequence

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
from openinfer.synth.targets.cstyle.templates import KernelWriter, PrintStatement
from openinfer.synth.targets.vulkan.dialect import TYPES, WORDS

WIDE_TYPES = (("oi_pairs", "uvec2", 8), ("oi_quads", "uvec4", 16))
"""Memory in accesses of two and four words: its type, that of an access, and how it is aligned."""
_NUMBER = "int(gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID)"
"""Neighbours in a subgroup are neighbours in the group."""


# --- loops ------------------------------------------------------------------------------------------------------------


def _thread(loop: For, writer: KernelWriter, depth: int) -> None:
    """Threads of the last group may have no iteration."""
    name = loop.index.name
    _place(loop, "gl_GlobalInvocationID.x", writer, depth)
    writer.line(depth, f"if ({name} < {writer.scalars.text(loop.extent)}) {{")
    writer.body(loop.body, depth + 1)
    writer.line(depth, "}")


def _group(loop: For, writer: KernelWriter, depth: int) -> None:
    """As many groups as there are iterations are launched, and a group has as many threads as the loop inside."""
    _place(loop, "gl_WorkGroupID.x", writer, depth)
    is_known = isinstance(loop.extent, Const) and type(loop.extent.value) is int
    if not is_known:
        writer.line(depth, f"if ({loop.index.name} < {writer.scalars.text(loop.extent)}) {{")
    inside = depth if is_known else depth + 1
    for one in loop.body:
        if isinstance(one, For) and one.bind is Bind.THREAD:
            _place(one, _NUMBER, writer, inside)
            writer.body(one.body, inside)
        else:
            writer.body((one,), inside)
    if not is_known:
        writer.line(depth, "}")


def _place(loop: For, builtin: str, writer: KernelWriter, depth: int) -> None:
    name, most = loop.index.name, writer.scalars.widths.interval(loop.extent)[1]
    kind = writer.scalars.counts(loop.index, most=most)
    writer.scalars.ranges[name] = (0, max(most - 1, 0))
    writer.line(depth, f"const {kind} {name} = {kind}({builtin});")


# --- threads that meet ------------------------------------------------------------------------------------------------


def _barrier(_one: GroupBarrier, writer: KernelWriter, depth: int) -> None:
    """The group sees what is written to memory, too; that others see it at once would take long."""
    writer.line(depth, "groupMemoryBarrier(); barrier();")


def _shuffled(dtype: DType, value: str, mask: int) -> str:
    """A value of the thread whose number differs in one bit; types that not every device exchanges go as words."""
    match dtype.name:
        case "f32" | "i32" | "u32" | "bool":
            return f"subgroupShuffleXor({value}, {mask}u)"
        case "f64":
            return f"packDouble2x32(subgroupShuffleXor(unpackDouble2x32({value}), {mask}u))"
        case "i64" | "u64":
            return f"{TYPES[dtype.name]}(packUint2x32(subgroupShuffleXor(unpackUint2x32(uint64_t({value})), {mask}u)))"
        case _:
            return f"{TYPES[dtype.name]}(subgroupShuffleXor(int32_t({value}), {mask}u))"


def _combine(one: Combine, writer: KernelWriter, depth: int) -> None:
    mask = 1
    while mask < one.width:
        writer.line(depth, "{")
        lines = _joined_alike if _is_symmetric(one) else _joined_in_order
        for line in lines(one, mask, writer):
            writer.line(depth + 1, line)
        writer.line(depth, "}")
        mask *= 2


def _is_symmetric(one: Combine) -> bool:
    """Whether each variable is joined with the other one alone, and it does not matter which comes first."""
    return all(
        isinstance(value, Binary)
        and value.op in ("add", "mul", "min", "max", "and", "or", "xor")
        and {value.left, value.right} == {var, other}
        for var, other, value in zip(one.variables, one.others, one.values, strict=True)
    )


def _joined_alike(one: Combine, mask: int, writer: KernelWriter) -> Iterator[str]:
    for var, other in zip(one.variables, one.others, strict=True):
        yield f"const {TYPES[var.dtype.name]} {other.name} = {_shuffled(var.dtype, var.name, mask)};"
    for var, value in zip(one.variables, one.values, strict=True):
        yield f"{var.name} = {writer.scalars.text(value)};"


def _joined_in_order(one: Combine, mask: int, writer: KernelWriter) -> Iterator[str]:
    """The first of two threads is the one without the bit, in both of them."""
    yield f"const bool is_second = (gl_SubgroupInvocationID & {mask}u) != 0u;"
    for var, other in zip(one.variables, one.others, strict=True):
        kind = TYPES[var.dtype.name]
        yield f"const {kind} own_{var.name} = {var.name}, got_{var.name} = {_shuffled(var.dtype, var.name, mask)};"
        yield f"{var.name} = is_second ? got_{var.name} : own_{var.name};"
        yield f"const {kind} {other.name} = is_second ? own_{var.name} : got_{var.name};"
    for var, value in zip(one.variables, one.values, strict=True):
        exact = "precise " if var.dtype.kind == "float" else ""
        yield f"{exact}const {TYPES[var.dtype.name]} new_{var.name} = {writer.scalars.text(value)};"
    for var in one.variables:
        yield f"{var.name} = new_{var.name};"


# --- several elements at once -----------------------------------------------------------------------------------------


def _accesses(words: int) -> tuple[str, str, int]:
    """The memory type of accesses that make up some words, the type of one, and how many words it has."""
    if words % 4 == 0:
        return "oi_quads", "uvec4", 4
    return ("oi_pairs", "uvec2", 2) if words % 2 == 0 else (WORDS, "uint32_t", 1)


def _place_of(one: WideLoad | WideStore, per: int, writer: KernelWriter) -> str:
    at = writer.scalars.offset(one.buffer, one.index)
    return f"uint({at}) / {per}u" if per > 1 else f"uint({at})"


def _wide_load(one: WideLoad, writer: KernelWriter, depth: int) -> None:
    dtype, name = one.buffer.dtype, one.variables[0].name
    words = one.count * dtype.bits // 32
    memory, kind, size = _accesses(words)
    at = _place_of(one, size * 32 // dtype.bits, writer) if dtype.bits <= 32 * size else ""
    for number in range(words // size):
        place = at if words == size else f"{at} + {number}u"
        writer.line(depth, f"const {kind} {name}_w{number} = {memory}({one.buffer.name}).v[{place}];")
    texts = [f"{name}_w{word // size}" + (f"[{word % size}]" if size > 1 else "") for word in range(words)]
    for number, var in enumerate(one.variables):
        if one.has_words:
            writer.line(depth, f"const uint32_t {var.name} = {texts[number]};")
            continue
        value = _element(dtype, texts, number * dtype.bits, writer)
        writer.line(depth, f"const {TYPES[dtype.compute.name]} {var.name} = {value};")


def _element(dtype: DType, words: Sequence[str], bit: int, writer: KernelWriter) -> str:
    """An element in its compute type, from the words that hold it."""
    word, shift = words[bit // 32], bit % 32
    if dtype.bits == 64:
        pair = f"uvec2({word}, {words[bit // 32 + 1]})"
        kind = TYPES[dtype.name]
        return f"packDouble2x32({pair})" if dtype.kind == "float" else f"{kind}(packUint2x32({pair}))"
    if dtype.name == "f32":
        return f"uintBitsToFloat({word})"
    if dtype.name == "bf16":
        return f"uintBitsToFloat({word} << 16)" if shift == 0 else f"uintBitsToFloat({word} & 0xffff0000u)"
    code = f"{word} >> {shift}u" if shift else word
    if dtype.is_packed:
        return _field(dtype, f"(({code}) & {(1 << dtype.bits) - 1}u)")
    if dtype.is_small_float:
        return f"{writer.scalars.need(f'oi_from_{dtype.name}')}({INTEGERS[f'u{dtype.bits}']}({code}))"
    if dtype.kind == "bool":
        return f"(({code}) & 255u) != 0u"
    return f"{TYPES[dtype.name]}({code})"


def _field(dtype: DType, code: str) -> str:
    """The number that bits of a word are."""
    kind, half = TYPES[dtype.compute.name], 1 << (dtype.bits - 1)
    if dtype.values is not None and dtype.bits == 1:
        return f"{kind}(2 * int32_t({code}) - 1)"
    return f"{kind}((int32_t({code}) ^ {half}) - {half})" if dtype.kind == "int" else f"{kind}({code})"


def _wide_store(one: WideStore, writer: KernelWriter, depth: int) -> None:
    dtype, per = one.buffer.dtype, max(32 // one.buffer.dtype.bits, 1)
    words = len(one.values) * dtype.bits // 32
    memory, kind, size = _accesses(words)
    at = _place_of(one, size * 32 // dtype.bits, writer)
    names = [value.name for value in one.values if isinstance(value, ScalarVar)]
    assert len(names) == len(one.values)
    texts = []
    for word in range(words):
        if dtype.bits == 64:
            texts.append(f"{_words_of(dtype, names[word // 2])}[{word % 2}]")
        elif dtype.name == "bf16":
            texts.append(f"{writer.scalars.need('oi_pair_bf16')}({names[2 * word]}, {names[2 * word + 1]})")
        else:
            codes = [_code(dtype, name, writer) for name in names[word * per : (word + 1) * per]]
            texts.append(
                " | ".join(f"{code} << {place * dtype.bits}u" if place else code for place, code in enumerate(codes))
            )
    for number in range(words // size):
        parts = ", ".join(texts[number * size : (number + 1) * size])
        place = at if words == size else f"{at} + {number}u"
        writer.line(depth, f"{memory}({one.buffer.name}).v[{place}] = {f'{kind}({parts})' if size > 1 else parts};")


def _words_of(dtype: DType, name: str) -> str:
    return f"unpackDouble2x32({name})" if dtype.kind == "float" else f"unpackUint2x32(uint64_t({name}))"


def _code(dtype: DType, name: str, writer: KernelWriter) -> str:
    """The bits of a value in a word; nothing is in the others."""
    if dtype.name == "f32":
        return f"floatBitsToUint({name})"
    if dtype.is_small_float:
        return f"uint32_t({writer.scalars.need(f'oi_to_{dtype.name}')}({name}))"
    if dtype.kind == "bool" or (dtype.values is not None and dtype.bits == 1):
        return f"({name if dtype.kind == 'bool' else f'{name} > 0'} ? 1u : 0u)"
    return f"(uint32_t({name}) & {(1 << dtype.bits) - 1}u)" if dtype.bits < 32 else f"uint32_t({name})"


LOOPS = {Bind.THREAD: _thread, Bind.GROUP: _group}
STATEMENTS: Mapping[type[Statement], PrintStatement] = {
    GroupBarrier: _barrier,
    Combine: _combine,
    WideLoad: _wide_load,
    WideStore: _wide_store,
}
