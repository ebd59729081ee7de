"""Launches as CUDA kernels."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from openinfer.loops.cse import with_names
from openinfer.loops.ir import Bind, Kernel, Ready, Statement, Unfailed, walk
from openinfer.synth.targets.cstyle import statements
from openinfer.synth.targets.cstyle.statements import Printed
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.cstyle.templates import KernelWriter, PrintStatement, Templates
from openinfer.synth.targets.cuda.dialect import KernelFrame, cuda
from openinfer.synth.targets.cuda.looked_up import looked_up
from openinfer.synth.targets.cuda.support import support_code
from openinfer.synth.targets.cuda.thread_words import CUDA_THREADS
from openinfer.synth.targets.cuda.tile_code import TILE_STATEMENTS, tile_bytes, unrolled
from openinfer.synth.targets.gpu.arguments import LaunchCode, arguments_of
from openinfer.synth.targets.simt.launches import Launch, group_of
from openinfer.synth.targets.simt.machine import SimtMachine

_HEAD = """#include <stdint.h>

#ifdef __NVCC__
#pragma nv_diag_suppress 39, 177, 550 /* unused names */
#endif

/* Matrix units: code for sm_90a only. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define OI_MATRIX_UNITS
#endif
#if defined(__CUDACC__) || defined(__CUDA__)
#define OI_TILES(bytes) extern __shared__ __align__(1024) unsigned char oi_tiles[]
#else
#define OI_TILES(bytes) static __align__(1024) unsigned char oi_tiles[bytes]
#endif

/* Access memory by one, two or four words of 4 bytes at once. */
template <typename T> static __device__ __forceinline__ uint32_t *oi_words(T *p) { return (uint32_t *)p; }
template <typename T> static __device__ __forceinline__ uint2 *oi_pairs(T *p) { return (uint2 *)p; }
template <typename T> static __device__ __forceinline__ uint4 *oi_quads(T *p) { return (uint4 *)p; }

/* Loads memory that nothing writes. The compiler must not delay the load, whatever follows it: not as ".nc", with which
   it comes after the wait for earlier launches. */
static __device__ __forceinline__ uint4 oi_ahead(const uint4 *p)
{
#ifdef __CUDA_ARCH__
    uint4 r;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
    return r;
#else
    return *p;
#endif
}

/* Lets the next launch begin, up to where it waits for this one. */
static __device__ __forceinline__ void oi_let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Waits until all launches before this one have ended and their writes are visible. */
static __device__ __forceinline__ void oi_ready()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The mask of this thread's team: width neighbouring threads of a warp. */
static __device__ __forceinline__ uint32_t oi_team(uint32_t width)
{
    return ((1u << width) - 1u) << (threadIdx.x & (32u - width));
}
"""


def _prepared(kernel: Kernel) -> Kernel:
    """Names common subexpressions; the schedule has already dealt with loops."""
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    return replace(kernel, body=with_names(kernel.body, taken))


def _templates(frame: KernelFrame) -> Templates:
    def ready(_one: Ready, writer: KernelWriter, depth: int) -> None:
        for line in ("oi_ready();", *frame.guard):
            writer.line(depth, line)

    def unfailed(_one: Unfailed, writer: KernelWriter, depth: int) -> None:
        if frame.is_guarded:
            writer.line(depth, "if (is_stopped) return;")

    own: dict[type[Statement], PrintStatement] = {
        **CUDA_THREADS.statements(),
        **TILE_STATEMENTS,
        Ready: ready,
        Unfailed: unfailed,
    }
    return Templates(prepared=_prepared, loops={**CUDA_THREADS.loops(), Bind.UNROLL: unrolled}, statements=own)


def launch_code(
    launch: Launch,
    name: str,
    group: int,
    bounds: Mapping[str, int] | None = None,
    *,
    knows_weights: bool = False,
    looks_up: frozenset[str] = frozenset(),
) -> LaunchCode:
    """A launch as a kernel of this name; ``group`` is the number of threads per group if the launch does not set it.

    It gets the addresses of the parameters in ``looks_up``. ``bounds`` are those of dynamic sizes.
    """
    is_early, is_late = (any(isinstance(one, kind) for one in walk(launch.kernel.body)) for kind in (Ready, Unfailed))
    has_tiles = tile_bytes(launch.kernel) > 0
    size = group_of(launch.kernel, group)
    frame = KernelFrame(size, launch.is_guarded, is_late, is_early, knows_weights, has_tiles, looks_up)
    code = statements.printed(launch.kernel, name, cuda(frame), _templates(frame), bounds=bounds)
    return LaunchCode(name, code, arguments_of(launch.kernel, code, is_guarded=launch.is_guarded))


def printed_launch(
    kernel: Kernel, name: str, _parts: int, *, machine: SimtMachine, bounds: Mapping[str, int]
) -> Printed:
    """A launch of a project, which checks whether an earlier one has failed."""
    launch = Launch(kernel, 0, is_guarded=True)
    looks_up = looked_up(kernel)
    own = launch_code(launch, name, machine.group, bounds, knows_weights=machine.knows_weights, looks_up=looks_up)
    return own.code


def support_text(needs: Iterable[Need]) -> str:
    """The header that kernels include: types, and the functions that they call."""
    return f"{_HEAD}\n{support_code(needs)}"
