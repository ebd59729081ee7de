"""What the READMEs of projects for devices share."""

from textwrap import fill

from openinfer.synth.targets.c.readme import bytes_text, failed_steps, listed
from openinfer.synth.targets.cstyle.fold import WIDEST
from openinfer.synth.targets.project import EmittedProject


def about_memory(project: EmittedProject) -> str:
    """The sections on memory, inputs, outputs and failures."""
    name, upper, placed = project.name, project.name.upper(), project.placed
    saved = "varies with the tables" if project.saved_bytes is None else bytes_text(project.saved_bytes)
    reason = f"`{name}_last_error` says what went wrong and where in the graph"
    return f"""| memory | bytes |
|---|---|
| arena (`{upper}_ARENA_BYTES`) | {bytes_text(placed.arena_bytes)} |
| state (`{upper}_STATE_BYTES`) | {bytes_text(placed.state_bytes)} |
| weights (`{upper}_WEIGHT_BYTES`) | {bytes_text(placed.weights.size)} |
| saved state | {saved} |

`{name}_memory` allocates the arena and the state. When done, call `{name}_free`, then `{name}_release`.

## Inputs

{listed(project, project.program.inputs, placed.names.inputs)}

## Outputs

{listed(project, project.program.outputs, placed.names.outputs)}

{fill(f"{failed_steps(project)}; {reason}.", WIDEST)}
"""
