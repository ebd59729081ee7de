"""The README of a Vulkan project: what it is, how it is built, how much memory it takes."""

from textwrap import fill

from openinfer._version import VERSION
from openinfer.synth.targets.c.readme import bytes_text, failed_steps, listed, plain_text
from openinfer.synth.targets.cstyle.fold import WIDEST
from openinfer.synth.targets.project import EmittedProject


def readme(project: EmittedProject, *, has_selftest: bool) -> str:
    """The text of ``README.md``."""
    name, upper, placed = project.name, project.name.upper(), project.placed
    test = "make selftest   # runs steps with known results and compares\n" if has_selftest else ""
    saved = "varies with the tables" if project.saved_bytes is None else bytes_text(project.saved_bytes)
    reason = f"`{name}_last_error` says what went wrong and where in the graph"
    return f"""# {name}

Compute shaders for Vulkan 1.2 with a host in C11, made by OpenInfer {VERSION} for the device
{plain_text(project.options.device)}.

```
make            # build/lib{name}.a
make example    # runs a step on simple inputs
{test}```

This takes a C compiler, `glslangValidator` and the Vulkan loader (on Debian `apt-get install gcc make glslang-tools
libvulkan-dev`), and a driver to run it (`mesa-vulkan-drivers` has one for every machine). Shaders become part of the
program.

The interface is `include/{name}.h`; `src/{name}.c` has the control flow, `shaders/` the arithmetic, `src/device.c` what
is said to Vulkan, and `plan.json` says where everything comes from. The code has no variables of its own and can be
used from several threads, with a context for each.

| memory | bytes |
|---|---|
| arena (`{upper}_ARENA_BYTES`) | {bytes_text(placed.arena_bytes)} |
| state (`{upper}_STATE_BYTES`) | {bytes_text(placed.state_bytes)} |
| weights (`{upper}_WEIGHT_BYTES`) | {bytes_text(placed.weights.size)} |
| saved state | {saved} |

`{name}_memory` gives memory for the arena and the state. Call `{name}_free` in the end, then `{name}_release`.

## Inputs

{listed(project, project.program.inputs, placed.names.inputs)}

## Outputs

{listed(project, project.program.outputs, placed.names.outputs)}

{fill(f"{failed_steps(project)}; {reason}.", WIDEST)}
"""
