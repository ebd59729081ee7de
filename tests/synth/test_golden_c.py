"""The emitted code is that of the list, byte for byte; what only moves code inside the compiler changes none of it."""

import pytest
from tests.synth.golden_c import changes, hashes_of, known, parsed, text_of
from tests.synth.golden_emit import digests
from tests.synth.golden_inputs import EVERY, watched

PART = 20
NAMES = list(watched())
PARTS = [NAMES[start : start + PART] for start in range(0, len(NAMES), PART)]


@pytest.mark.parametrize("names", PARTS, ids=[f"{part[0]}..{part[-1]}" for part in PARTS])
def test_emitted_code_is_the_same_as_before(names: list[str]) -> None:
    changed = changes(known(), hashes_of(names))
    lines = [f"{project}: {', '.join(files)}" for project, files in changed.items()]
    advice = "python -m tests.synth.golden_c shows the difference, and with --update writes the list anew"
    assert not changed, "\n".join([f"{len(changed)} projects have changed; {advice}", *lines[:20]])


def test_the_list_has_nothing_else() -> None:
    assert list(known()) == [f"{name}/{choice}" for name, one in watched().items() for choice in one.listed]


def test_every_option_on_every_device_is_in_the_list() -> None:
    for kinds in (("graph-",), ("example-", "written-")):
        listed = [choice for name, one in watched().items() if name.startswith(kinds) for choice in one.listed]
        assert {*listed} == {*EVERY}


def test_few_projects_are_refused() -> None:
    """Of those, the list would only know that they are."""
    listed = known()
    refused = [project for project, files in listed.items() if "error.txt" in files]
    assert len(refused) < len(listed) / 10, refused


def test_a_changed_byte_is_named() -> None:
    before = {"graph-000/generic/default": digests({"src/net.c": b"return 0;", "Makefile": b"all:"})}
    now = {"graph-000/generic/default": digests({"src/net.c": b"return 1;", "Makefile": b"all:"})}
    assert changes(parsed(text_of(before)), before) == {}
    assert changes(parsed(text_of(before)), now) == {"graph-000/generic/default": ["src/net.c"]}
