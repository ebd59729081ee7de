"""A C text that calls functions of the runtime, printed for their names: by the code of any revision."""

import re
import sys

from tests.synth.runtime_in_c import HEAD

from openinfer.synth.targets.c.support import support_code


def source(wanted: list[str]) -> str:
    """A C text with the functions, and with two around each: one that calls it, and a loop."""
    known = [name for name in wanted if _is_known(name)]
    text = support_code(known)
    return HEAD + text + "".join(call(name, text) + _loop(name, text) for name in known)


def _is_known(name: str) -> bool:
    try:
        support_code([name])
    except (KeyError, AssertionError):
        return False
    return True


def call(name: str, text: str, head: str = "") -> str:
    """A function that calls one of a text; nothing if that is a type or a macro."""
    found = _signature(name, text)
    if found is None:
        return ""
    result, types = found
    parameters = ", ".join(f"{one} a{at}" for at, one in enumerate(types))
    values = ", ".join(f"a{at}" for at in range(len(types)))
    return f"{head}{result} call_{name}({parameters}) {{ return {name}({values}); }}\n"


def _loop(name: str, text: str) -> str:
    found = _signature(name, text)
    if found is None:
        return ""
    result, types = found
    arrays = "".join(f"const {one} *restrict a{at}, " for at, one in enumerate(types))
    values = ", ".join(f"a{at}[i]" for at in range(len(types)))
    return (
        f"void each_{name}({arrays}{result} *restrict y) {{\n"
        f"    for (int i = 0; i < 4096; i++) y[i] = {name}({values});\n}}\n"
    )


def _signature(name: str, text: str) -> tuple[str, list[str]] | None:
    """The types of a function's result and of its parameters."""
    match = re.search(rf"^(?:static inline|static|OI_\w+) (\w+) {name}\((.*)\)(?: \{{|$)", text, re.MULTILINE)
    return None if match is None else (match[1], [part.split()[0] for part in match[2].split(",")])


if __name__ == "__main__":
    print(source(sys.argv[1:]))
