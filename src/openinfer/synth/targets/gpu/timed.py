"""A source that is compiled in place of a project's own, and runs the device's clock around every launch.

It includes the project's source unchanged: a macro intercepts its launches, which are identified by their positions.
"""

from openinfer.synth.targets.project import EmittedProject

TIMED_SOURCE = "src/timed.c"


def timed_source(project: EmittedProject) -> str:
    """The text of ``src/timed.c``."""
    name = project.name
    count = max(len(project.kernels.calls), 1)
    return f"""#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "{name}.h"
#include "device.h"
#include "runtime.h"

int32_t {name}_is_timed;                                 /* whether launches are timed, or only whole steps */
int64_t {name}_step_nanoseconds;                         /* how long the last step took */
int64_t {name}_nanoseconds[{count}], {name}_calls[{count}]; /* for each launch in the source, since they were cleared */

enum {{ oi_first = __COUNTER__ + 1 }};
#define LAUNCH(kernel, groups, failure, count, ...) \\
    (oi_place(c->device, __COUNTER__ - oi_first), oi_launch(c->device, kernel, groups, failure, count, __VA_ARGS__))

#include "{name}.c"

static int64_t oi_now(void)
{{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}}

int {name}_clocked_step({name}_context *c, const {name}_inputs *in, {name}_outputs *out)
{{
    oi_time(c->device, {name}_is_timed ? {name}_nanoseconds : NULL, {name}_calls);
    const int64_t began = oi_now();
    const int status = {name}_step(c, in, out);
    {name}_step_nanoseconds = oi_now() - began;
    return status;
}}
"""
