"""The emitted code is that of the list, byte for byte; what only moves code inside the compiler changes none of it.

Since all of it is at hand here, this is also where every line of it is looked at.
"""

import re
from collections import Counter
from collections.abc import Mapping

import pytest
from tests.everything import HAS_EVERYTHING
from tests.synth.golden_c import changes, hashes_of, known, parsed, text_of
from tests.synth.golden_emit import digests
from tests.synth.golden_inputs import EVERY, watched

from openinfer.synth.targets.cstyle.fold import WIDEST

PART = 20
LOOKED_AT = {"graph": 75, "program": 25}
"""So many random ones in the normal run: every device with every option. All in ``make test-c`` and ``make golden``."""


def is_looked_at(name: str) -> bool:
    kind, _, number = name.partition("-")
    return HAS_EVERYTHING or not number.isdecimal() or int(number) < LOOKED_AT[kind]


NAMES = [name for name in watched() if is_looked_at(name)]
PARTS = [NAMES[start : start + PART] for start in range(0, len(NAMES), PART)]


_LOOP = re.compile(r"for \(\w+ (\w+) = (\d+); \1 < (\d+); \+\+\1\)")


def is_single_iteration(line: str) -> bool:
    """Whether a line is the head of a loop that runs once."""
    found = _LOOP.search(line)
    return found is not None and int(found[3]) == int(found[2]) + 1


def untidy_lines(project: str, files: Mapping[str, bytes]) -> list[str]:
    """Lines that are too wide to read, end in blanks or begin a loop that runs once.

    The plan is for programs, the weights are numbers.
    """
    texts = {path: data.decode("ascii") for path, data in files.items() if not path.endswith((".json", ".bin"))}
    return [
        f"{project}/{path}:{number}: {line}"
        for path, text in texts.items()
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > WIDEST or line != line.rstrip() or is_single_iteration(line)
    ]


@pytest.mark.parametrize("names", PARTS, ids=[f"{part[0]}..{part[-1]}" for part in PARTS])
def test_emitted_code_is_the_same_as_before_and_no_line_of_it_is_wide_or_blank(names: list[str]) -> None:
    untidy: list[str] = []
    changed = changes(known(), hashes_of(names, lambda project, files: untidy.extend(untidy_lines(project, files))))
    assert not untidy, "\n".join(untidy[:20])
    lines = [f"{project}: {', '.join(files)}" for project, files in changed.items()]
    advice = "python -m tests.synth.golden_c shows the difference, and with --update writes the list anew"
    assert not changed, "\n".join([f"{len(changed)} projects have changed; {advice}", *lines[:20]])


def test_random_graphs_and_programs_are_looked_at() -> None:
    kinds = Counter(name.partition("-")[0] for name in NAMES)
    assert all(kinds[kind] >= count for kind, count in LOOKED_AT.items())


def test_the_list_has_nothing_else() -> None:
    assert list(known()) == [f"{name}/{choice}" for name, one in watched().items() for choice in one.listed]


def test_every_option_on_every_device_is_in_the_list() -> None:
    for kinds in (("graph-",), ("example-", "written-")):
        listed = [choice for name in NAMES if name.startswith(kinds) for choice in watched()[name].listed]
        assert {*listed} == {*EVERY}


def test_few_projects_are_refused() -> None:
    """Of those, the list would only know that they are."""
    listed = known()
    refused = [project for project, files in listed.items() if "error.txt" in files]
    assert len(refused) < len(listed) / 10, refused


def test_an_untidy_line_is_named() -> None:
    files = {"Makefile": b"a" * WIDEST + b"\n\t\nall:", "src/net.c": b"a" * (WIDEST + 1), "plan.json": b" " * 200}
    found = untidy_lines("graph-000", files)
    assert [line.split(": ")[0] for line in found] == ["graph-000/Makefile:2", "graph-000/src/net.c:1"]


def test_the_head_of_a_single_iteration_loop_is_named() -> None:
    heads = [f"    for (int64_t i = 128; i < {end}; ++i) {{" for end in (129, 130)]
    files = {"src/kernels.c": "\n".join([*heads, "for (int k = 0; k < 16; k += 16)"]).encode()}
    assert [line.split(": ")[0] for line in untidy_lines("graph-000", files)] == ["graph-000/src/kernels.c:1"]


def test_a_changed_byte_is_named() -> None:
    before = {"graph-000/generic/default": digests({"src/net.c": b"return 0;", "Makefile": b"all:"})}
    now = {"graph-000/generic/default": digests({"src/net.c": b"return 1;", "Makefile": b"all:"})}
    assert changes(parsed(text_of(before)), before) == {}
    assert changes(parsed(text_of(before)), now) == {"graph-000/generic/default": ["src/net.c"]}
