"""A source that is compiled in place of a project's own, and reads a clock around every kernel call.

It includes the project's source unchanged: macros with the names of the kernels intercept its calls. So the code of
projects knows nothing about clocks, and what is timed is the code that every user gets.
"""

from typing import TYPE_CHECKING

from openinfer.synth.targets.cstyle.library import UsedKernel

if TYPE_CHECKING:
    from openinfer.synth.targets.c.project import Project

TIMED_SOURCE = "src/timed.c"


def timed_source(project: "Project") -> str:
    """The text of ``src/timed.c``.

    A call is identified by its position in the source: compilers count calls in the order of ``KernelLibrary.calls``.
    """
    name, kernels = project.name, project.kernels
    count = max(len(kernels.calls), 1)
    alone = [_macro(used) for used in kernels.used.values() if used.parts == 1]
    together = [_timed("oi_run")] if any(used.parts > 1 for used in kernels.used.values()) else []
    macros = "\n".join([*alone, *together])
    return f"""#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "{name}.h"
#include "kernels.h"
#include "runtime.h"

int32_t {name}_is_timed;                                 /* whether to time calls, or only whole steps */
int64_t {name}_step_nanoseconds;                         /* the duration of the last step */
int64_t {name}_nanoseconds[{count}], {name}_calls[{count}]; /* per call in the source, since the last clear */

enum {{ oi_first = __COUNTER__ + 1 }};
static int64_t oi_began;

static int64_t oi_now(void)
{{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}}

__attribute__((unused)) static void oi_begin(void)
{{
    if ({name}_is_timed) oi_began = oi_now();
}}

__attribute__((unused)) static int oi_end(int status, int place)
{{
    if ({name}_is_timed) {{
        {name}_nanoseconds[place] += oi_now() - oi_began;
        {name}_calls[place] += 1;
    }}
    return status;
}}

{macros}

#include "{name}.c"

int {name}_clocked_step({name}_context *c, const {name}_inputs *in, {name}_outputs *out)
{{
    const int64_t began = oi_now();
    const int status = {name}_step(c, in, out);
    {name}_step_nanoseconds = oi_now() - began;
    return status;
}}
"""


def _macro(used: UsedKernel) -> str:
    if not used.code.can_fail:
        return _timed(used.name)
    return f"#define {used.name}(...) (oi_begin(), oi_end({used.name}(__VA_ARGS__), __COUNTER__ - oi_first))"


def _timed(function: str) -> str:
    """A macro for a function without a result."""
    return f"#define {function}(...) (oi_begin(), {function}(__VA_ARGS__), (void)oi_end(0, __COUNTER__ - oi_first))"
