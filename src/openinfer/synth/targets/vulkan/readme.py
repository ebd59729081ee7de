"""The README of a Vulkan project: what it is, how to build it, how much memory it takes."""

from openinfer._version import VERSION
from openinfer.synth.targets.c.readme import plain_text
from openinfer.synth.targets.gpu.readme import about_memory
from openinfer.synth.targets.project import EmittedProject


def readme(project: EmittedProject, *, has_selftest: bool) -> str:
    """The text of ``README.md``."""
    name = project.name
    test = "make selftest   # runs steps with known results and compares\n" if has_selftest else ""
    return f"""# {name}

Compute shaders for Vulkan 1.2 with a host in C11, made by OpenInfer {VERSION} for the device
{plain_text(project.options.device)}.

```
make            # build/lib{name}.a
make example    # runs a step on simple inputs
{test}```

Building it takes a C compiler, `glslangValidator` and the Vulkan loader (on Debian `apt-get install gcc make
glslang-tools libvulkan-dev`), and running it a driver (`mesa-vulkan-drivers` has one for every machine). Shaders are
embedded in the program.

The interface is `include/{name}.h`; `src/{name}.c` has the control flow, `shaders/` the arithmetic, `src/device.c` and
`src/commands.c` the calls to Vulkan, and `plan.json` says where everything comes from. The code has no global variables
and can be used from several threads, with a context for each.

{about_memory(project)}"""
