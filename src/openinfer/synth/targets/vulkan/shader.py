"""Launches as compute shaders."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from openinfer.dtypes import DTYPES
from openinfer.loops.cse import with_names
from openinfer.loops.ir import Kernel, Ready, Space, Statement, Unfailed, walk
from openinfer.loops.rewrite import variables_of, with_buffers
from openinfer.synth.targets.cstyle import statements
from openinfer.synth.targets.cstyle.statements import Printed
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.cstyle.templates import KernelWriter, PrintStatement, Templates
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.gpu.arguments import LaunchCode, arguments_of
from openinfer.synth.targets.simt.launches import Launch, has_teams
from openinfer.synth.targets.simt.wide import FreshNames
from openinfer.synth.targets.vulkan.dialect import (
    PUSHED,
    STORED,
    LaunchGuard,
    glsl,
    has_near_quotients,
    known_words,
    memory_type,
)
from openinfer.synth.targets.vulkan.divisors import with_common_divisors, with_inverse_roots, with_inverses
from openinfer.synth.targets.vulkan.exact import with_exact_names, with_factors, with_floors, with_near_stores
from openinfer.synth.targets.vulkan.exchanges import EXCHANGES
from openinfer.synth.targets.vulkan.support import EXTENSIONS, support_code
from openinfer.synth.targets.vulkan.thread_words import WIDE_TYPES, glsl_threads
from openinfer.synth.targets.vulkan.waiting import FUNCTIONS, IN_TEAMS, MEMORY_MODEL, POST

VERSION_LINE = "#version 460"
_EXTENSIONS = (
    *EXTENSIONS,
    "GL_EXT_buffer_reference",
    "GL_EXT_buffer_reference_uvec2",
    "GL_EXT_shader_8bit_storage",
    "GL_EXT_shader_16bit_storage",
    "GL_EXT_spirv_intrinsics",
    "GL_KHR_shader_subgroup_basic",
    "GL_KHR_shader_subgroup_shuffle",
)
_PRESERVE = 'spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);'
"""SignedZeroInfNanPreserve for 32 bits: a product with 0 is not always 0."""
_DENORMAL = 'spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);'
"""DenormPreserve for 32 bits: subnormal numbers are not flushed to 0."""


def _prepared(kernel: Kernel, *, numerics: Numerics) -> Kernel:
    """Names common subexpressions and arithmetic that must be exact; the schedule has already dealt with loops."""
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    body = with_factors(with_floors(kernel.body) if numerics.subnormals == "flushed" else kernel.body)
    body = with_inverse_roots(body, {kind for function, kind in glsl(numerics).about if function == "rsqrt"})
    body = with_near_stores(body)
    if has_near_quotients(numerics):
        body = with_inverses(body)
        body = with_common_divisors(body, FreshNames(taken | {var.name for var in variables_of(body)}))
    body = with_names(body, taken)
    return replace(kernel, body=with_exact_names(body, taken | {var.name for var in variables_of(body)}))


@cache
def _templates(numerics: Numerics, guard: LaunchGuard) -> Templates:
    def ready(_one: Ready, writer: KernelWriter, depth: int) -> None:
        for line in ("oi_await();", guard.value):
            writer.line(depth, line)

    def unfailed(_one: Unfailed, writer: KernelWriter, depth: int) -> None:
        if guard is not LaunchGuard.NONE:
            writer.line(depth, "if (is_stopped) return;")

    threads = glsl_threads(numerics)
    own: dict[type[Statement], PrintStatement] = {**threads.statements(), **EXCHANGES, Ready: ready, Unfailed: unfailed}
    return Templates(partial(_prepared, numerics=numerics), loops=threads.loops(), statements=own)


def launch_code(launch: Launch, name: str, numerics: Numerics, bounds: Mapping[str, int] | None = None) -> LaunchCode:
    """A launch as a function of this name, for the numerics of a device; ``bounds`` are those of dynamic sizes."""
    late = LaunchGuard.LATE if has_statement(launch.kernel, Unfailed) else LaunchGuard.FIRST
    guard = late if launch.is_guarded else LaunchGuard.NONE
    in_teams = has_teams(launch.kernel)
    dialect = glsl(numerics, guard, is_early=has_statement(launch.kernel, Ready), in_teams=in_teams)
    kernel, templates = _with_shared_names(launch.kernel, name), _templates(numerics, guard)
    code = statements.printed(kernel, name, dialect, templates, bounds=bounds)
    return LaunchCode(name, code, arguments_of(launch.kernel, code, is_guarded=launch.is_guarded or in_teams))


def has_statement(kernel: Kernel, kind: type[Statement]) -> bool:
    """Whether a launch contains a statement of this type."""
    return any(isinstance(one, kind) for one in walk(kernel.body))


def printed_launch(kernel: Kernel, name: str, _parts: int, *, numerics: Numerics, bounds: Mapping[str, int]) -> Printed:
    """A launch of a project, which checks whether an earlier one has failed."""
    return launch_code(Launch(kernel, 0, is_guarded=True), name, numerics, bounds).code


def _with_shared_names(kernel: Kernel, name: str) -> Kernel:
    """Makes names of shared memory unique: it is declared outside functions, and a shader may have several of these."""
    shared = {one.name: replace(one, name=f"{name}_{one.name}") for one in kernel.scratch if one.space is Space.GROUP}
    return with_buffers(kernel, shared) if shared else kernel


def shader(launches: Sequence[LaunchCode], group: int, numerics: Numerics, main: str) -> str:
    """A shader with the functions of launches; ``main`` calls them."""
    in_teams = any(f"{POST}(" in one.code.text for one in launches)
    parts = [
        VERSION_LINE,
        *[f"#define {IN_TEAMS}"] * in_teams,
        head(numerics, is_shared=in_teams),
        *[FUNCTIONS] * in_teams,
        group_line(group),
        *functions(launches, numerics),
        f"void main()\n{{\n    {main}\n}}\n",
    ]
    return "\n".join(parts)


def functions(launches: Sequence[LaunchCode], numerics: Numerics) -> list[str]:
    """The functions of launches, after the support functions that they call."""
    needs = {need for one in launches for need in one.code.needs}
    return [*support_texts(needs, numerics), *(one.code.text for one in launches)]


def support_texts(needs: Iterable[Need], numerics: Numerics) -> list[str]:
    """Support code for the numerics of a device, after the macros that it depends on."""
    known = known_words(numerics)
    support = support_code(needs, known)
    return [*(f"#define {word} {value}" for word, value in known.items() if word in support), support]


def group_line(group: int) -> str:
    """The line that declares the threads per group of a shader."""
    return f"layout(local_size_x = {group}) in;\n"


def head(numerics: Numerics, *, is_shared: bool = False) -> str:
    """What every shader has after its first line: extensions, buffer types and arguments.

    With ``is_shared``, others may write memory while a launch runs, which takes Vulkan's memory model.
    """
    lines = [*MEMORY_MODEL] * is_shared
    lines += [f"#extension {one} : require" for one in _EXTENSIONS]
    lines += [_PRESERVE, *([_DENORMAL] if numerics.subnormals == "when_asked" else ())]
    lines += _memory_types("OI_SHARED " * is_shared)
    block = "layout(buffer_reference, std430, buffer_reference_align = 8) buffer oi_argument_block { uvec2 at[]; };"
    lines += [block, f"layout(push_constant) uniform oi_arguments {{ uvec2 at[{PUSHED}]; }} arguments;"]
    return "\n".join([*lines, ""])


def _memory_types(how: str) -> Iterable[str]:
    found = {memory_type(one): (STORED[one.name], 4 if one.is_packed else one.itemsize) for one in DTYPES.values()}
    for name, (kind, align) in found.items():
        qualifiers = f"buffer_reference, std430, buffer_reference_align = {align}"
        yield f"layout({qualifiers}) {how}buffer {name} {{ {kind} v[]; }};"
    for name, kind, align in WIDE_TYPES:
        qualifiers = f"buffer_reference, std430, buffer_reference_align = {align}"
        yield f"layout({qualifiers}) {how}buffer {name} {{ {kind} v[]; }};"
