"""The tests are tested: known bugs are planted one at a time, and each must make the tests meant for it fail.

``python -m tests.planted_bugs`` copies ``src``, patches the copy, and runs a narrow selection of tests against it. A
patch whose text no longer occurs exactly once is an error too: the bug must move with the code. Words after the command
choose the bugs whose names contain one of them; ``--match`` only looks whether the patches fit. The selected tests run
first without any bug, since catching one would prove nothing else; ``--passed`` says that they just have.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.planted_bugs.bug import Bug
from tests.planted_bugs.devices import DEVICE_BUGS
from tests.planted_bugs.files import READER_BUGS, WRITER_BUGS
from tests.planted_bugs.language import LANGUAGE_BUGS, OP_BUGS, SIMULATION_BUGS
from tests.planted_bugs.planting import FAILED, PACKAGE, PASSED, ROOT, Copies
from tests.planted_bugs.programs import EMISSION_BUGS, PASS_BUGS, PROGRAM_BUGS, TUNING_BUGS
from tests.planted_bugs.rows import ROW_BUGS
from tests.planted_bugs.studio import STUDIO_BUGS
from tests.planted_bugs.synthesizer import SYNTHESIZER_BUGS

WORKERS = 2
CAUGHT = "caught"


BUGS = (
    READER_BUGS
    + WRITER_BUGS
    + EMISSION_BUGS
    + LANGUAGE_BUGS
    + SIMULATION_BUGS
    + OP_BUGS
    + SYNTHESIZER_BUGS
    + PASS_BUGS
    + DEVICE_BUGS
    + ROW_BUGS
    + TUNING_BUGS
    + PROGRAM_BUGS
    + STUDIO_BUGS
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the chosen bugs, print what became of each, and return 1 if one survived."""
    parser = ArgumentParser(prog="python -m tests.planted_bugs", description="Plants known bugs; each must be caught.")
    parser.add_argument("words", nargs="*", help="only bugs whose names contain one of these")
    parser.add_argument("--match", action="store_true", help="only look whether the patches fit the sources")
    parser.add_argument("--passed", action="store_true", help="the tests have just passed without any bug")
    options = parser.parse_args(arguments)
    chosen = [bug for bug in BUGS if not options.words or any(word in bug.name for word in options.words)]
    if not chosen:
        parser.error("no planted bug has such a name")
    lost = len(_drifted(chosen)) if options.match else _survivors(chosen, is_sound=options.passed)
    done = "match" if options.match else "were caught"
    print(f"{len(chosen) - lost} of {len(chosen)} planted bugs {done}")
    return 1 if lost else 0


def _drifted(bugs: Sequence[Bug]) -> list[Bug]:
    """The bugs whose text does not occur exactly once; each is printed."""
    found = [bug for bug in bugs if (ROOT / "src" / PACKAGE / bug.file).read_text().count(bug.old) != 1]
    for bug in found:
        print(f"DRIFTED   {bug.name}: {bug.file}")
    return found


def _survivors(bugs: Sequence[Bug], *, is_sound: bool) -> int:
    """Plant bugs in copies of the sources; how many no test has caught. All, where tests fail without them."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        copies = Copies(Path(folder), WORKERS)
        groups = {} if is_sound else _groups(bugs)
        if not all(list(pool.map(lambda group: _sound(copies, *group), groups.items()))):
            return len(bugs)
        return sum(not caught for caught in pool.map(lambda bug: _is_caught(bug, copies), bugs))


def _groups(bugs: Sequence[Bug]) -> dict[str, list[str]]:
    """The selections of tests, by their files."""
    expressions: dict[str, list[str]] = {}
    for bug in bugs:
        expressions.setdefault(bug.tests, []).append(f"({bug.expression})")
    return expressions


def _sound(copies: Copies, tests: str, selected: list[str]) -> bool:
    """Whether the selected tests pass where no bug is planted; otherwise catching one would prove nothing."""
    with copies.borrowed() as source:
        done = copies.run(source, tests, " or ".join(selected))
    if done.status != PASSED:
        print(f"{tests} fails without any planted bug:\n{done.text}")
        return False
    print(f"sound     {tests}: {done.text.strip().splitlines()[-1]}", flush=True)
    return True


def _is_caught(bug: Bug, copies: Copies) -> bool:
    start = perf_counter()
    with copies.borrowed() as source:
        verdict, witness = _verdict(bug, copies, source)
    print(f"{verdict:9}{perf_counter() - start:5.1f} s  {bug.name:45} {witness}", flush=True)
    return verdict == CAUGHT


def _verdict(bug: Bug, copies: Copies, source: Path) -> tuple[str, str]:
    """Plant the bug, run its tests, take it out again; what became of it, and the test that noticed."""
    path = source / PACKAGE / bug.file
    original = path.read_text()
    if original.count(bug.old) != 1:
        return "DRIFTED", f"{bug.old!r} occurs {original.count(bug.old)} times in {bug.file}"
    path.write_text(original.replace(bug.old, bug.new))
    try:
        done = copies.run(source, bug.tests, bug.expression)
    finally:
        path.write_text(original)
    if done.status == FAILED and done.noticed:
        return CAUGHT, done.noticed[0]
    if done.crash:
        return CAUGHT, f"generated code stopped the tests: {done.crash}"
    print(done.text)
    return ("SURVIVED" if done.status == PASSED else "NOT RUN"), ""


if __name__ == "__main__":
    sys.exit(main())
