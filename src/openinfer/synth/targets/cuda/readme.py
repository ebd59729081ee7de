"""The README of a CUDA project: what it is, how to build it, how much memory it takes."""

from openinfer._version import VERSION
from openinfer.synth.targets.c.readme import plain_text
from openinfer.synth.targets.gpu.readme import about_memory
from openinfer.synth.targets.project import EmittedProject


def readme(project: EmittedProject, *, has_selftest: bool) -> str:
    """The text of ``README.md``."""
    name = project.name
    test = "make selftest   # runs steps with known results and compares\n" if has_selftest else ""
    return f"""# {name}

CUDA kernels with a host in C11, made by OpenInfer {VERSION} for the device {plain_text(project.options.device)}.

```
make            # build/lib{name}.a
make example    # runs a step on simple inputs
{test}```

Building it takes a C compiler and the CUDA toolkit (`nvcc`), and running it a GPU and its driver.

The interface is `include/{name}.h`; `src/{name}.c` has the control flow, `src/kernels.cu` the arithmetic,
`src/device.c` and `src/commands.c` the calls to CUDA, and `plan.json` says where everything comes from. The code has no
global variables and can be used from several threads, with a context for each. An instance uses the device that is
current in the calling thread when it is initialised (`cudaSetDevice`).

{about_memory(project)}"""
