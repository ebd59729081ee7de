"""The README of a project: what it is, how to build it, and how much memory it takes."""

from collections.abc import Mapping
from textwrap import fill

from openinfer._version import VERSION
from openinfer.synth.program.ir import Value
from openinfer.synth.targets.cstyle.fold import WIDEST
from openinfer.synth.targets.project import EmittedProject


def readme(project: EmittedProject, *, has_selftest: bool) -> str:
    """The text of ``README.md``."""
    name, upper = project.name, project.name.upper()
    test = "make selftest   # runs steps and compares with known results\n" if has_selftest else ""
    weights = {
        "file": "`src/weights.bin`, which the caller reads or maps into memory",
        "array": "`src/weights.c`, an array in the program",
        "incbin": "`src/weights.bin`, which `src/weights.S` includes in the program",
    }[project.options.weights]
    saved = "varies with the tables" if project.saved_bytes is None else bytes_text(project.saved_bytes)
    threads = (
        f"\n`{name}_start_threads` lets {project.placed.threads} threads share the large kernels of a step; results"
        " are the same without.\n"
        if project.placed.threads > 1
        else ""
    )
    free = (
        f"\nTables without bounds own memory: call `{name}_free` at the end.\n" if project.placed.state.growing else ""
    )
    reason = f"`{name}_last_error` returns the reason, and where in the graph it failed"
    return f"""# {name}

C11 without dependencies, made by OpenInfer {VERSION} for the device {plain_text(project.options.device)}.

```
make            # build/lib{name}.a
make example    # runs a step on simple inputs
{test}```

The interface is `include/{name}.h`; `src/{name}.c` has the control flow, `src/kernels.c` the arithmetic, and
`plan.json` records where everything comes from. The code has no mutable globals and can be used from several
threads, with a context for each.

| memory | bytes |
|---|---|
| arena (`{upper}_ARENA_BYTES`) | {bytes_text(project.placed.arena_bytes)} |
| state (`{upper}_STATE_BYTES`) | {bytes_text(project.placed.state_bytes)} |
| weights (`{upper}_WEIGHT_BYTES`) | {bytes_text(project.placed.weights.size)} |
| saved state | {saved} |

The weights are in {weights}.
{threads}{free}
## Inputs

{listed(project, project.program.inputs, project.placed.names.inputs)}

## Outputs

{listed(project, project.program.outputs, project.placed.names.outputs)}

{fill(f"{failed_steps(project)}; {reason}.", WIDEST)}
"""


def failed_steps(project: EmittedProject) -> str:
    """What happens when a step fails; the header says the same."""
    if not project.placed.can_tear:
        return "A step that fails has no effect: persistent variables keep their values"
    rest = "persistent variables are undefined, and steps are refused until they are reset or loaded"
    if project.placed.rollback_bytes:
        bytes_ = f"{project.name.upper()}_UNDO_BYTES"
        return f"A step that fails is rolled back. But if its undo log exceeds `{bytes_}`, {rest}"
    return f"A step that fails because of an input has no effect. If it fails later, {rest}"


def bytes_text(count: int) -> str:
    """A number of bytes, with separators."""
    return f"{count:,}"


def listed(project: EmittedProject, values: Mapping[str, Value], fields: Mapping[str, str]) -> str:
    """A table of tensors. Names are identifiers of the graph, which cannot break a table."""
    if not values:
        return "None."
    rows = [
        f"| `{fields[key]}` | {plain_text(key)} | {value.dtype.name}[{', '.join(map(repr, value.shape))}] |"
        for key, value in values.items()
    ]
    sizes = [f"{plain_text(size)} is at most {bound}" for size, bound in project.program.sizes.items()]
    note = f"\n\nDynamic sizes: {'; '.join(sizes)}." if sizes and any(project.placed.names.input_sizes) else ""
    return "\n".join(["| field | variable | type |", "|---|---|---|", *rows]) + note


def plain_text(text: str) -> str:
    """Untrusted text in Markdown: ASCII letters, digits and a few marks; the rest is left out."""
    return "".join(one for one in text if (one.isascii() and one.isalnum()) or one in "_.- ")[:100]
