"""Support code in GLSL, which has no hexadecimal floats and takes a number without a suffix for one of 32 bits."""

import re
from collections.abc import Iterable

from openinfer.synth.targets.cstyle.integers import integer_functions
from openinfer.synth.targets.cstyle.support import Need, Support

EXTENSIONS = ("GL_EXT_shader_explicit_arithmetic_types",)
"""What a shader with support code must require."""

SUPPORT = Support(
    folders=(("openinfer.synth.targets.cstyle", "runtime"), ("openinfer.synth.targets.vulkan", "runtime")),
    generated=integer_functions,
)

_HEXADECIMAL = r"0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:[pP][+-]?\d+)?"
_DECIMAL = r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(rf"(?P<number>{_HEXADECIMAL}|{_DECIMAL})(?P<suffix>[a-zA-Z]*)|/\*.*?\*/|\w+", re.DOTALL)


def support_code(needs: Iterable[Need]) -> str:
    """The definitions in GLSL of these functions and all they call, in an order that compiles."""
    return with_glsl_numbers(SUPPORT.code(needs))


def with_glsl_numbers(text: str) -> str:
    """A text with the numbers of C as GLSL writes them: the same values, in the same types.

    >>> with_glsl_numbers("x * 0x1.8p52 + 0.5f; u & 0xfffffffffffffu; y2 << 3")
    'x * 6755399441055744.0lf + 0.5f; u & 0xffffffffffffful; y2 << 3'
    """
    return _TOKEN.sub(lambda match: _number(match["number"], match["suffix"]) if match["number"] else match[0], text)


def _number(digits: str, suffix: str) -> str:
    is_hexadecimal = digits[:2] in ("0x", "0X")
    if re.search(r"[pP]" if is_hexadecimal else r"[.eE]", digits):
        # The shortest digits that are read back as the same number: 17 at most.
        value = float.fromhex(digits) if is_hexadecimal else float(digits)
        return f"{value!r}{suffix if suffix in ('f', 'F') else 'lf'}"
    # A number of C has the first type that it fits; one of GLSL has that of its suffix.
    is_unsigned = suffix.lower() == "u"
    bits = 32 if is_unsigned or is_hexadecimal else 31
    return digits + ("u" if is_unsigned else "") + ("l" if int(digits, 0) >= 2**bits else "")
