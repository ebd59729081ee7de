"""What tests tell compilers: little in the normal run, where most of the time would be theirs; everything on demand.

``make test-c`` asks for everything: generated code as users compile it, and with every check for undefined behaviour.
"""

import shutil
from collections.abc import Iterable

from tests.everything import HAS_EVERYTHING

from openinfer.synth.run.library import FLAGS

FAST = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno")
QUICK = tuple("-O0" if flag == "-O1" else flag for flag in FAST)
"""For what does not depend on how code is optimized: compilers take a third of the time."""
USUAL = FLAGS if HAS_EVERYTHING else QUICK
"""For whole projects of which only the values are looked at."""

LEVEL = "-O1" if HAS_EVERYTHING else "-O0"
"""For kernels of which only the values are looked at."""

COMPILERS = [cc for cc in ("gcc", "clang") if shutil.which(cc)]


def dealt(names: Iterable[str]) -> list[tuple[str, str]]:
    """Every name with every compiler; in the normal run with one of them, in turns."""
    return [
        (name, cc)
        for place, name in enumerate(names)
        for cc in (COMPILERS if HAS_EVERYTHING else [COMPILERS[place % len(COMPILERS)]])
    ]


_EVERY_ACCESS = "-fno-sanitize=null,alignment,pointer-overflow,object-size"
UNDEFINED = (
    "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", *(() if HAS_EVERYTHING else (_EVERY_ACCESS,)),
)  # fmt: skip
"""Undefined behaviour ends the program. What is checked at every access to memory doubles the time of a compiler: the
normal run has that where it looks at memory too, with the sanitizer of addresses."""
TRAPS = (*QUICK, *UNDEFINED)
