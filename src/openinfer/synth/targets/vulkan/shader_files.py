"""The shaders of a project as files: one for each launch, and what they share."""

from collections.abc import Callable
from dataclasses import dataclass

from openinfer.synth.targets.cstyle.fold import folded
from openinfer.synth.targets.cstyle.kernel_docs import kernel_doc
from openinfer.synth.targets.cstyle.library import KernelLibrary, UsedKernel
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.simt.launches import group_of
from openinfer.synth.targets.vulkan.shader import VERSION_LINE, group_line, head, support_texts

SUPPORT_FILE = "shaders/support.glsl"
_SHARED = f'{VERSION_LINE}\n#extension GL_GOOGLE_include_directive : require\n#include "support.glsl"\n'
_COPY = """
uvec2 oi_given(uint i)
{
    if (arguments.at[15] != uvec2(0)) return oi_argument_block(arguments.at[15]).at[i];
    return arguments.at[i];
}

/* Copies bytes, by words: the last one may share its word with others, which stay. */
void main()
{
    oi_words from = oi_words(oi_given(0)), to = oi_words(oi_given(1)), status = oi_words(oi_given(3));
    const uint bytes = oi_given(2).x, words = bytes / 4u, rest = bytes % 4u, own = oi_given(4).x;
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    if (own != 0u && status.v[0] < own) return;
    for (uint i = gl_GlobalInvocationID.x; i < words; i += step) to.v[i] = from.v[i];
    if (gl_GlobalInvocationID.x == 0u && rest != 0u) {
        const uint mask = (1u << (rest * 8u)) - 1u;
        to.v[words] = (to.v[words] & ~mask) | (from.v[words] & mask);
    }
}
"""


@dataclass(frozen=True)
class ShaderFiles:
    """Prints these files once the source has been, which says what it launches."""

    name: str
    kernels: KernelLibrary
    group: int
    """Threads of a group, where a launch does not say."""
    numerics: Numerics
    title: Callable[[int], str]
    """A node in words."""

    @property
    def names(self) -> dict[str, str]:
        """The files of shaders, in the order of their numbers, and what each is called in the program."""
        found = {"shaders/copy.comp": f"{self.name}_copy"}
        for used in self.kernels.used.values():
            found[f"shaders/{used.name.removeprefix(f'{self.name}_')}.comp"] = used.name
        return found

    def files(self, banner: str) -> dict[str, str]:
        """The shaders, and what all of them include."""
        used = {one.name: one for one in self.kernels.used.values()}
        copy = f"\n{group_line(self.group)}{_COPY}"
        texts = {path: self._shader(used[name]) if name in used else copy for path, name in self.names.items()}
        needs: set[Need] = {need for one in used.values() for need in one.code.needs}
        shared = "\n".join([head(self.numerics), *support_texts(needs, self.numerics)])
        found = {path: f"{_SHARED}\n{banner}{text}" for path, text in texts.items()}
        return {**found, SUPPORT_FILE: f"{banner}\n{shared}"}

    def _shader(self, used: UsedKernel) -> str:
        text = f"{kernel_doc(used, self.title)}{used.code.text}\nvoid main()\n{{\n    {used.name}();\n}}\n"
        return f"\n{group_line(group_of(used.kernel, self.group))}\n{folded(text)}"

    def table(self) -> str:
        """The source that has all shaders, once they are compiled."""
        headers = [f'#include "{name}.h"' for name in self.names.values()]
        rows = [f"    {{ {name}, sizeof {name} }}," for name in self.names.values()]
        lines = ['#include "device.h"', "", *headers, "", f"const oi_shader {self.name}_shaders[] = {{", *rows, "};"]
        return "\n" + "\n".join(lines) + "\n"
