"""Tiles in CUDA: shared memory allocated at launch, asynchronous copies into it, and matrix units.

A row of a tile has 128 bytes, in pieces of 16 bytes. These are swizzled as the units expect: the position of a piece is
its number XOR that of its row, modulo 8. Without matrix units, as on a CPU, the same sums are computed one by one.
"""

from collections.abc import Callable, Sequence
from math import prod

from openinfer.dtypes import DType
from openinfer.loops.ir import Buffer, For, Kernel, Scalar, ScalarVar, Space, Statement, TileStep, walk
from openinfer.loops.tile_steps import (
    TILE_BYTES,
    TileCopy,
    TileMix,
    TileMoment,
    TileProduct,
    TileStore,
    TileSync,
    TileWeights,
)
from openinfer.synth.targets.cstyle.integers import INTEGERS
from openinfer.synth.targets.cstyle.support import SupportFunction
from openinfer.synth.targets.cstyle.templates import KernelWriter, PrintStatement

_UNITS = {"bf16": ("bf16", "f32", "float", 16), "f16": ("f16", "f32", "float", 16), "i8": ("s8", "s32", "int32_t", 32)}
"""The instruction's names for elements and sums, the C type of sums, and the terms per instruction."""


def _bytes(buffer: Buffer) -> int:
    return prod(map(int, buffer.shape)) * buffer.dtype.bits // 8


def tile_bytes(kernel: Kernel) -> int:
    """The bytes of shared memory that are allocated at launch; 0 without tiles."""
    if not any(isinstance(one, TileStep) for one in walk(kernel.body)):
        return 0
    return sum(_bytes(one) for one in kernel.scratch if one.space is Space.GROUP)


def tile_memory(buffers: Sequence[Buffer], stored: Callable[[DType], str]) -> list[str]:
    """Declares the tiles in shared memory that is allocated at launch: each starts at a multiple of 8 rows."""
    lines, place = [f"OI_TILES({sum(map(_bytes, buffers))});"], 0
    for one in buffers:
        kind = stored(one.dtype)
        lines.append(f"{kind} *const {one.name} = ({kind} *)(oi_tiles + {place});")
        place += _bytes(one)
    return lines


def unrolled(loop: For, writer: KernelWriter, depth: int) -> None:
    """Prints an unrolled loop."""
    writer.line(depth, "#pragma unroll")
    writer.loop(loop, "0", writer.scalars.text(loop.extent), depth)


# --- statements -------------------------------------------------------------------------------------------------------


def _row(tile: Buffer, index: tuple[Scalar, ...], writer: KernelWriter) -> str:
    """The number of a row, counted across all stages."""
    return writer.scalars.text(index[0] * tile.shape[1] + index[1])


def _place(one: TileCopy | TileStore, writer: KernelWriter) -> str:
    row, term = _row(one.tile, one.index, writer), writer.scalars.text(one.index[-1])
    return f"{writer.scalars.need('oi_piece')}({one.tile.name}, uint32_t({row}), uint32_t({term}))"


def _copy(one: TileCopy, writer: KernelWriter, depth: int) -> None:
    own = writer.scalars
    source = f"{one.source.name} + {own.offset(one.source, one.source_index)}"
    valid = "true" if one.valid is None else own.text(one.valid)
    writer.line(depth, f"{own.need('oi_copy_ahead')}({_place(one, writer)}, {source}, {valid});")


def _store(one: TileStore, writer: KernelWriter, depth: int) -> None:
    own, dtype = writer.scalars, one.tile.dtype
    names = [value.name for value in one.values if isinstance(value, ScalarVar)]
    codes = [f"{own.need(f'oi_to_{dtype.name}')}({name})" if dtype.is_small_float else name for name in names]
    mask = (1 << dtype.bits) - 1
    per = 32 // dtype.bits
    shifted = [f"(uint32_t({code}) & {mask}u) << {at % per * dtype.bits}u" for at, code in enumerate(codes)]
    words = [" | ".join(shifted[at : at + per]) for at in range(0, len(shifted), per)]
    writer.line(depth, f"*(uint4 *){_place(one, writer)} = make_uint4({', '.join(words)});")


def _sync(one: TileSync, writer: KernelWriter, depth: int) -> None:
    match one.moment:
        case TileMoment.BATCH:
            text = f"{writer.scalars.need('oi_batch')}()"
        case TileMoment.ARRIVED:
            text = f"{writer.scalars.need('oi_arrived')}<{one.pending}>()"
        case TileMoment.SUMMED:
            assert one.sums is not None
            text = f"{writer.scalars.need('oi_summed')}({one.sums.name})"
    writer.line(depth, f"{text};")


def _product(one: TileProduct, writer: KernelWriter, depth: int) -> None:
    own, dtype = writer.scalars, one.rows.dtype
    parts = []
    for tile, index in ((one.rows, one.rows_index), (one.columns, one.columns_index)):
        parts.append(f"{tile.name} + ({_row(tile, index, writer)}) * {TILE_BYTES * 8 // dtype.bits}")
    function = own.need(product_function(dtype, one.width))
    writer.line(depth, f"{function}({one.sums.name}, {', '.join(parts)});")


def _mix(one: TileMix, writer: KernelWriter, depth: int) -> None:
    own, dtype = writer.scalars, one.tile.dtype
    function = own.need(mix_function(dtype, one.width))
    place = f"{one.tile.name} + ({_row(one.tile, one.index, writer)}) * {TILE_BYTES * 8 // dtype.bits}"
    writer.line(depth, f"{function}({one.sums.name}, {one.weights.name}, {place});")


def _weights(one: TileWeights, writer: KernelWriter, depth: int) -> None:
    own = writer.scalars
    writer.line(depth, f"{own.need('oi_weights')}<{one.half}>({one.sums.name}, {own.text(one.most)});")


TILE_STATEMENTS: dict[type[Statement], PrintStatement] = {
    TileCopy: _copy,
    TileStore: _store,
    TileSync: _sync,
    TileProduct: _product,
    TileMix: _mix,
    TileWeights: _weights,
}

# --- functions --------------------------------------------------------------------------------------------------------


def product_function(dtype: DType, width: int) -> SupportFunction:
    """The function that multiplies 64 rows of a tile with ``width`` rows of another."""
    elements, total, kind, terms = _UNITS[dtype.name]
    stored = INTEGERS[f"u{dtype.bits}"] if dtype.is_small_float else INTEGERS[dtype.name]
    count, letter = width // 2, "f" if total == "f32" else "r"
    names = ", ".join(f"%{number}" for number in range(count))
    signs = ", p, 1, 1, 0, 0" if total == "f32" else ", p"
    element = f"oi_from_{dtype.name}" if dtype.is_small_float else "int32_t"
    sums = ", ".join(f'"+{letter}"(sums[{number}])' for number in range(count))
    name = f"oi_product_{dtype.name}_{width}"
    text = f"""/* Adds products of 64 rows of one tile and {width} rows of another to the sums of 128 threads. */
static __device__ __forceinline__ void {name}({kind} (&sums)[{count}], const {stored} *rows, const {stored} *columns)
{{
#ifdef OI_MATRIX_UNITS
    const uint64_t left = oi_tile(rows), right = oi_tile(columns);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (uint32_t term = 0; term < 4; ++term)
        asm volatile("{{ .reg .pred p; setp.ne.b32 p, 1, 0; "
            "wgmma.mma_async.sync.aligned.m64n{width}k{terms}.{total}.{elements}.{elements} "
            "{{{names}}}, %{count}, %{count + 1}{signs}; }}"
            : {sums}
            : "l"(left + 2 * term), "l"(right + 2 * term));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#else
    const uint32_t first = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u;
    for (uint32_t i = 0; i < {count}u; ++i) {{
        const uint32_t row = first + i / 2u % 2u * 8u, column = i / 4u * 8u + threadIdx.x % 4u * 2u + i % 2u;
        for (uint32_t term = 0; term < {TILE_BYTES * 8 // dtype.bits}u; ++term) {{
            const uint32_t each = {16 * 8 // dtype.bits}u, from = term / each * each;
            const {kind} one = {element}(oi_piece(rows, row, from)[term % each]);
            sums[i] += one * {element}(oi_piece(columns, column, from)[term % each]);
        }}
    }}
#endif
}}
"""
    needs = ("oi_piece", "oi_tile", *((f"oi_from_{dtype.name}",) if dtype.is_small_float else ()))
    return SupportFunction(name, needs, text)


def mix_function(dtype: DType, width: int) -> SupportFunction:
    """The function that multiplies weights in registers with ``width`` columns of a tile.

    A weight is the sum of two elements: each product has two parts.
    """
    elements, total, _, terms = _UNITS[dtype.name]
    count, name = width // 2, f"oi_mix_{dtype.name}_{width}"
    names = ", ".join(f"%{number}" for number in range(count))
    parts = ", ".join(f"%{count + number}" for number in range(4))
    sums = ", ".join(f'"+f"(sums[{number}])' for number in range(count))
    given = ", ".join(f'"r"(own[{number}])' for number in range(4))
    text = f"""/* Adds the rows of a tile to the sums of 128 threads, each times its weight. Weights are laid out as
   sums are: a thread has two rows, and two adjacent columns of every 8. */
template <int known>
static __device__ __forceinline__ void {name}(float (&sums)[{count}], const float (&weights)[known],
    const uint16_t *tile)
{{
    uint32_t parts[known / 8][2][4];
#pragma unroll
    for (int step = 0; step < known / 8; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            oi_halves_{dtype.name}(weights[step * 8 + i * 2], weights[step * 8 + i * 2 + 1], parts[step][0][i],
                parts[step][1][i]);
#ifdef OI_MATRIX_UNITS
    const uint64_t right = oi_tile(tile);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < known / 4; ++i) {{
        const uint32_t (&own)[4] = parts[i / 2][i % 2];
        asm volatile("{{ .reg .pred p; setp.ne.b32 p, 1, 0; "
            "wgmma.mma_async.sync.aligned.m64n{width}k{terms}.{total}.{elements}.{elements} "
            "{{{names}}}, {{{parts}}}, %{count + 4}, p, 1, 1, 1; }}"
            : {sums}
            : {given}, "l"(right + uint64_t(i / 2 * {terms * TILE_BYTES // 16})));
    }}
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < {count}; ++i) oi_pinned(sums[i]);
#else
    const uint32_t lane = threadIdx.x % 32u;
    for (uint32_t row = 0; row < known * 2u; ++row)
        for (uint32_t i = 0; i < {count}u; ++i) {{
            /* The thread of this team that has the weight, and its place there. */
            const uint32_t from = lane % 4u ^ row % 8u / 2u, place = row % 16u / 8u * 2u + i / 2u % 2u;
            float weight = 0.0f;
            for (uint32_t part = 0; part < 2u; ++part) {{
                const uint32_t pair = __shfl_xor_sync(oi_team(4), parts[row / 16u][part][place], int(from));
                weight += __uint_as_float(row % 2u == 0u ? pair << 16 : pair & 0xffff0000u);
            }}
            const uint32_t column = i / 4u * 8u + lane % 4u * 2u + i % 2u;
            sums[i] += weight * oi_from_{dtype.name}(oi_piece(tile, row, column / 8u * 8u)[column % 8u]);
        }}
#endif
}}
"""
    needs = ("oi_piece", "oi_tile", "oi_pinned", f"oi_halves_{dtype.name}", f"oi_from_{dtype.name}")
    return SupportFunction(name, needs, text)
