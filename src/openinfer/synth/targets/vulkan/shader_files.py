"""The shader files of a project: one for each launch, and the code that they share."""

from collections.abc import Callable
from dataclasses import dataclass
from string import Template

from openinfer.loops.ir import Ready
from openinfer.loops.teams import words_of
from openinfer.synth.targets.cstyle.fold import folded
from openinfer.synth.targets.cstyle.kernel_docs import kernel_doc
from openinfer.synth.targets.cstyle.library import KernelLibrary, UsedKernel
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.simt.launches import group_of, has_teams
from openinfer.synth.targets.vulkan.shader import VERSION_LINE, group_line, has_statement, head, support_texts
from openinfer.synth.targets.vulkan.waiting import FUNCTIONS, IN_TEAMS, WAITING

SUPPORT_FILE = "shaders/support.glsl"
_INCLUDES = f"{VERSION_LINE}\n#extension GL_GOOGLE_include_directive : require\n"
_SUPPORT = '#include "support.glsl"\n'
_GIVEN = """
uvec2 oi_given(uint i)
{
    if (arguments.at[15] != uvec2(0)) return oi_argument_block(arguments.at[15]).at[i];
    return arguments.at[i];
}
"""
_COPY = """
/* Copies bytes by words. In the last word, bytes that are not copied stay as they are. */
void $name()
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
_CELLS = """
uint oi_field(oi_words p, uint i, uint bits)
{
    if (bits == 32u) return p.v[i];
    const uint each = 32u / bits;
    return (p.v[i / each] >> (i % each * bits)) & ((1u << bits) - 1u);
}

/* Threads that store to the same word use atomics, each for the bits of its own element. */
void oi_store(oi_words p, uint i, uint bits, uint code)
{
    if (bits == 32u) {
        p.v[i] = code;
        return;
    }
    const uint each = 32u / bits, shift = i % each * bits, mask = ((1u << bits) - 1u) << shift;
    atomicAnd(p.v[i / each], ~mask);
    atomicOr(p.v[i / each], (code << shift) & mask);
}

/* Accesses cells of an array: reads them into a tensor (0), writes them from one (1), fills them (2), or copies them
   from another array (3). If an earlier launch has failed, it only saves their old contents. */
void main()
{
    oi_words value = oi_words(oi_given(1)), kept = oi_words(oi_given(2)), cells = oi_words(oi_given(3));
    const uint action = oi_given(4).x, axes = oi_given(4).y, bits = oi_given(5).x, value_bits = oi_given(5).y;
    const uint first = oi_given(6).x, value_first = oi_given(6).y, entry = oi_given(7).x, units = oi_given(7).y;
    const uvec2 initial = oi_given(8);
    const bool is_kept = oi_given(9).x != 0u;
    oi_words status = oi_words(oi_given(10u + 2u * axes));
    const uint own = oi_given(11u + 2u * axes).x;
    const bool has_failed = own != 0u && status.v[0] < own;
    for (uint i = gl_GlobalInvocationID.x; i < units; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
        uint rest = i / entry, place = 0u, each = 1u;
        bool is_inside = true;
        for (uint axis = axes; axis-- > 0u;) {
            const uvec2 shape = oi_given(10u + 2u * axis);
            const uint count = oi_given(11u + 2u * axis).x, at = shape.y + rest % count;
            rest /= count;
            is_inside = is_inside && at < shape.x;
            place += at * each;
            each *= shape.x;
        }
        const uint unit = i % entry, other = value_first + place * entry + unit, empty = initial[unit & 1u];
        place = first + place * entry + unit;
        if (action == 0u) {
            const uint found = is_inside ? oi_field(cells, place, bits) : empty;
            if (!has_failed) oi_store(value, value_first + i, value_bits, found);
            continue;
        }
        if (is_kept) oi_store(kept, i, bits, oi_field(cells, place, bits));
        if (has_failed) continue;
        uint code = empty;
        if (action == 1u) code = oi_field(value, value_first + i, value_bits);
        if (action == 3u) code = oi_field(value, other, value_bits);
        oi_store(cells, place, bits, code);
    }
}
"""
_COUNTED_COPY = (
    Template(_COPY).substitute(name="oi_work")
    + """
void main()
{
    oi_status = oi_given(3);
    oi_own = oi_given(4);
    oi_await();
    oi_work();
    oi_ended();
}
"""
)
_FIXED = {"copy": Template(_COPY).substitute(name="main"), "cells": _CELLS}
"""The shaders that every project has, in the order of their numbers."""


def _counts(used: UsedKernel) -> bool:
    """Whether the groups of a launch wait for earlier ones, and are counted when they end."""
    return has_statement(used.kernel, Ready)


@dataclass(frozen=True)
class ShaderFiles:
    """Prints the shader files, once printing the source has determined what it launches."""

    name: str
    kernels: KernelLibrary
    group: int
    """Threads per group, unless a launch sets them."""
    numerics: Numerics
    title: Callable[[int], str]
    """Describes a node."""

    @property
    def names(self) -> dict[str, str]:
        """The shader files, in the order of their numbers, with the name of each in the program."""
        found = {f"shaders/{one}.comp": f"{self.name}_{one}" for one in _FIXED}
        for used in self.kernels.used.values():
            found[f"shaders/{used.name.removeprefix(f'{self.name}_')}.comp"] = used.name
        return found

    @property
    def _counted(self) -> set[str]:
        """The launches whose groups wait and are counted; if there are any, so are the copies between them."""
        found = {one.name for one in self.kernels.used.values() if _counts(one)}
        return found | {f"{self.name}_copy"} if found else found

    @property
    def _in_teams(self) -> dict[str, int]:
        """The launches whose groups wait for others of the same launch, with the words that they need for it."""
        return {one.name: words_of(one.kernel) for one in self.kernels.used.values() if has_teams(one.kernel)}

    def files(self, banner: str) -> dict[str, str]:
        """The shaders, and the file that all of them include."""
        used = {one.name: one for one in self.kernels.used.values()}
        begin = f"\n{group_line(self.group)}{_GIVEN}"
        fixed = {f"{self.name}_{one}": begin + text for one, text in _FIXED.items()}
        texts = {path: fixed.get(name) or self._shader(used[name]) for path, name in self.names.items()}
        needs: set[Need] = {need for one in used.values() for need in one.code.needs}
        if self._counted:
            texts["shaders/copy.comp"] = begin + _COUNTED_COPY
        words = dict.fromkeys(self._counted, WAITING) | dict.fromkeys(self._in_teams, IN_TEAMS)
        known = head(self.numerics, is_shared=bool(words))
        shared = "\n".join([known, *[FUNCTIONS] * bool(words), *support_texts(needs, self.numerics)])
        begins = {path: f"#define {words[name]}\n" if name in words else "" for path, name in self.names.items()}
        found = {path: f"{_INCLUDES}{begins[path]}{_SUPPORT}\n{banner}{text}" for path, text in texts.items()}
        return {**found, SUPPORT_FILE: f"{banner}\n{shared}"}

    def _shader(self, used: UsedKernel) -> str:
        calls = "".join(f"    {one}();\n" for one in (used.name, *["oi_ended"] * _counts(used)))
        text = f"{kernel_doc(used, self.title)}{used.code.text}\nvoid main()\n{{\n{calls}}}\n"
        return f"\n{group_line(group_of(used.kernel, self.group))}\n{folded(text)}"

    def table(self) -> str:
        """The source that contains all compiled shaders."""
        headers = [f'#include "{name}.h"' for name in self.names.values()]
        waiting = dict.fromkeys(self._counted, "OI_FOR_LAUNCHES") | dict.fromkeys(self._in_teams, "OI_FOR_TEAM")
        facts = {name: waiting.get(name, "OI_FOR_NONE") for name in self.names.values()}
        teams = self._in_teams
        rows = [f"    {{ {name}, sizeof {name}, {fact}, {4 * teams.get(name, 0)} }}," for name, fact in facts.items()]
        lines = ['#include "device.h"', "", *headers, "", f"const oi_kernel {self.name}_kernels[] = {{", *rows, "};"]
        return "\n" + "\n".join(lines) + "\n"
