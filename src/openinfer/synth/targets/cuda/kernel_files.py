"""The kernel files of a project: shared support code, and a source with every launch."""

from collections.abc import Callable
from dataclasses import dataclass

from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Kernel, Ready, Space, walk
from openinfer.synth.targets.cstyle.fold import folded
from openinfer.synth.targets.cstyle.kernel_docs import kernel_doc
from openinfer.synth.targets.cstyle.library import KernelLibrary, UsedKernel
from openinfer.synth.targets.cuda.kernel import support_text
from openinfer.synth.targets.cuda.looked_up import fixed_groups, looked_up_bits
from openinfer.synth.targets.cuda.tile_code import tile_bytes
from openinfer.synth.targets.gpu.arguments import arguments_of
from openinfer.synth.targets.simt.launches import group_of
from openinfer.synth.targets.simt.machine import SimtMachine

KERNELS_FILE = "src/kernels.cu"
SUPPORT_FILE = "src/support.cuh"
_CELL_WORDS = 12
"""Argument words of the kernel that works on cells, apart from two for each axis."""
_FIXED = """
/* Copies bytes by words. In the last word, bytes that are not copied stay as they are. */
extern "C" __global__ void {name}_copy(const uint32_t *from, uint32_t *to, const uint64_t bytes, const uint32_t *status,
    const uint32_t own)
{{
    const uint64_t words = bytes / 4u, step = uint64_t(gridDim.x) * blockDim.x;
    const uint64_t first = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint32_t rest = uint32_t(bytes % 4u);
{ready}    if (own != 0u && *status < own) return;
    for (uint64_t i = first; i < words; i += step) to[i] = from[i];
    if (first == 0u && rest != 0u) {{
        const uint32_t mask = (1u << (rest * 8u)) - 1u;
        to[words] = (to[words] & ~mask) | (from[words] & mask);
    }}
}}

static __device__ uint32_t oi_field(const uint32_t *p, uint64_t i, uint32_t bits)
{{
    if (bits == 32u) return p[i];
    const uint32_t each = 32u / bits;
    return (p[i / each] >> (i % each * bits)) & ((1u << bits) - 1u);
}}

/* Threads that store to the same word use atomics, each for the bits of its own element. */
static __device__ void oi_store(uint32_t *p, uint64_t i, uint32_t bits, uint32_t code)
{{
    if (bits == 32u) {{
        p[i] = code;
        return;
    }}
    const uint32_t each = 32u / bits, shift = uint32_t(i % each) * bits, mask = ((1u << bits) - 1u) << shift;
    atomicAnd(&p[i / each], ~mask);
    atomicOr(&p[i / each], (code << shift) & mask);
}}

/* Arguments: addresses, or 32-bit numbers, two to a word. */
struct oi_cell_words {{
    uint64_t at[{words}];

    __device__ uint32_t low(uint32_t i) const {{ return uint32_t(at[i]); }}
    __device__ uint32_t high(uint32_t i) const {{ return uint32_t(at[i] >> 32); }}
    __device__ uint32_t *memory(uint32_t i) const {{ return (uint32_t *)at[i]; }}
}};

/* Accesses cells of an array: reads them into a tensor (0), writes them from one (1), fills them (2), or copies them
   from another array (3). If an earlier launch has failed, it only saves their old contents. */
extern "C" __global__ void {name}_cells(const oi_cell_words given)
{{
    uint32_t *const value = given.memory(1), *const kept = given.memory(2), *const cells = given.memory(3);
    const uint32_t action = given.low(4), axes = given.high(4), bits = given.low(5), value_bits = given.high(5);
    const uint32_t first = given.low(6), value_first = given.high(6), entry = given.low(7), units = given.high(7);
    const bool is_kept = given.low(9) != 0u;
    const uint32_t *const status = given.memory(10u + 2u * axes);
    const uint32_t own = given.low(11u + 2u * axes);
{ready}    const bool has_failed = own != 0u && *status < own;
    const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < units; i += step) {{
        uint64_t rest = i / entry, place = 0, each = 1;
        bool is_inside = true;
        for (uint32_t axis = axes; axis-- > 0u;) {{
            const uint32_t shape = given.low(10u + 2u * axis), count = given.low(11u + 2u * axis);
            const uint64_t at = given.high(10u + 2u * axis) + rest % count;
            rest /= count;
            is_inside = is_inside && at < shape;
            place += at * each;
            each *= shape;
        }}
        const uint64_t unit = i % entry, other = value_first + place * entry + unit;
        const uint32_t empty = (unit & 1u) != 0u ? given.high(8) : given.low(8);
        place = first + place * entry + unit;
        if (action == 0u) {{
            const uint32_t found = is_inside ? oi_field(cells, place, bits) : empty;
            if (!has_failed) oi_store(value, value_first + i, value_bits, found);
            continue;
        }}
        if (is_kept) oi_store(kept, i, bits, oi_field(cells, place, bits));
        if (has_failed) continue;
        uint32_t code = empty;
        if (action == 1u) code = oi_field(value, value_first + i, value_bits);
        if (action == 3u) code = oi_field(value, other, value_bits);
        oi_store(cells, place, bits, code);
    }}
}}
"""
"""The kernels that every project has, in the order of their numbers."""
_APART = 1024
"""Bytes above half of a unit's shared memory with which it has no room for a second group."""
_READY = "    oi_let_next_begin();\n    oi_ready();\n"
_EARLY = {None: 0, "edges": 1, "short": 1, "chain": 2, "one": 3}
"""How launches follow each other, as numbers for the host; 0 if they begin when those before them have ended."""


def _bits(one: UsedKernel) -> str:
    bits = looked_up_bits(one.kernel, arguments_of(one.kernel, one.code, is_guarded=True))
    return f"{bits:#x}" if bits else "0"


@dataclass(frozen=True)
class CudaKernels:
    """Prints the kernel files, once printing the source has determined what it launches."""

    name: str
    library: KernelLibrary
    machine: SimtMachine
    title: Callable[[int], str]
    """Describes a node."""

    @property
    def count(self) -> int:
        """The number of kernels, including those that every project has."""
        return 2 + len(self.library.used)

    def files(self, banner: str, axes: int) -> dict[str, str]:
        """The kernels, and the file that they include; ``axes`` is the most that an array has."""
        used = [*self.library.used.values()]
        needs = {need for one in used for need in one.code.needs}
        words = _CELL_WORDS + 2 * axes
        texts = [f"{kernel_doc(one, self.title)}{one.code.text}" for one in used]
        usual, early = self.machine.group, 0 if self.machine.is_early_if_short else _EARLY[self.machine.early]
        rows: list[tuple[object, ...]] = [
            (f"{self.name}_copy", usual, 0, 0, early, "0"),
            (f"{self.name}_cells", usual, words, 0, early, "0"),
        ]
        rows += [(one.name, *self._facts(one)) for one in used]
        lines = (", ".join(map(str, (f"(const void *){name}", *facts))) for name, *facts in rows)
        table = "\n".join(f"    {{ {line} }}," for line in lines)
        parts = [
            '#include "support.cuh"\n\nextern "C" {\n#include "device.h"\n}\n',
            _FIXED.format(name=self.name, words=words, ready=_READY * (early > 0)),
            *(f"\n{text}" for text in texts),
            f"\nconst oi_kernel {self.name}_kernels[] = {{\n{table}\n}};\n",
        ]
        support = f"#pragma once\n\n{support_text(needs)}"
        return {KERNELS_FILE: f"{banner}\n{folded(''.join(parts))}", SUPPORT_FILE: f"{banner}\n{support}"}

    def _facts(self, one: UsedKernel) -> tuple[object, ...]:
        """What the host knows of a kernel."""
        is_early = any(isinstance(each, Ready) for each in walk(one.kernel.body))
        shared = tile_bytes(one.kernel) or (self._apart(one.kernel) if is_early else 0)
        follows = _EARLY[self.machine.early] if is_early else 0
        return group_of(one.kernel, self.machine.group), 0, shared, follows, _bits(one)

    def _apart(self, kernel: Kernel) -> int:
        """The bytes of shared memory to allocate at launch so that a unit has room for one group.

        A launch that begins early finds some units free before others. Two of its groups on one of them would leave
        another idle, if there is a unit for each.
        """
        groups = fixed_groups(kernel)
        if groups is None or groups > self.machine.units:
            return 0
        own = sum(one.dtype.nbytes(most_elements(one.shape)) for one in kernel.scratch if one.space is Space.GROUP)
        return max(0, self.machine.most_shared_bytes // 2 + _APART - own)
