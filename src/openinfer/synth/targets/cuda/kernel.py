"""Launches as kernels of CUDA."""

from collections.abc import Iterable
from dataclasses import replace

from openinfer.loops.cse import with_names
from openinfer.loops.ir import Kernel
from openinfer.synth.targets.cstyle import statements
from openinfer.synth.targets.cstyle.statements import Printed
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.cstyle.templates import Templates
from openinfer.synth.targets.cuda.dialect import cuda
from openinfer.synth.targets.cuda.support import support_code
from openinfer.synth.targets.cuda.thread_words import CUDA_THREADS
from openinfer.synth.targets.gpu.arguments import LaunchCode, arguments_of
from openinfer.synth.targets.simt.launches import Launch, group_of

_HEAD = """#include <stdint.h>

#ifdef __NVCC__
#pragma nv_diag_suppress 39, 177, 550 /* names that nothing needs in the end */
#endif

/* Memory in words of 4 bytes: one, two or four of them at once. */
template <typename T> static __device__ __forceinline__ uint32_t *oi_words(T *p) { return (uint32_t *)p; }
template <typename T> static __device__ __forceinline__ uint2 *oi_pairs(T *p) { return (uint2 *)p; }
template <typename T> static __device__ __forceinline__ uint4 *oi_quads(T *p) { return (uint4 *)p; }

/* The threads of a warp that belong together with this one, so many neighbours, as bits. */
static __device__ __forceinline__ uint32_t oi_team(uint32_t width)
{
    return ((1u << width) - 1u) << (threadIdx.x & (32u - width));
}
"""


def _prepared(kernel: Kernel) -> Kernel:
    """With names for what it repeats; the schedule has seen to its loops."""
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    return replace(kernel, body=with_names(kernel.body, taken))


_TEMPLATES = Templates(prepared=_prepared, loops=CUDA_THREADS.loops(), statements=CUDA_THREADS.statements())


def launch_code(launch: Launch, name: str, group: int) -> LaunchCode:
    """A launch as a kernel of this name; groups have so many threads where a launch does not say."""
    dialect = cuda(is_guarded=launch.is_guarded, group=group_of(launch.kernel, group))
    code = statements.printed(launch.kernel, name, dialect, _TEMPLATES)
    return LaunchCode(name, code, arguments_of(launch.kernel, code, is_guarded=launch.is_guarded))


def printed_launch(kernel: Kernel, name: str, _parts: int, *, group: int) -> Printed:
    """A launch of a project, which looks whether an earlier one has failed."""
    return launch_code(Launch(kernel, 0, is_guarded=True), name, group).code


def support_text(needs: Iterable[Need]) -> str:
    """What kernels include: types, and the functions that they call."""
    return f"{_HEAD}\n{support_code(needs)}"
