"""Whether the emitted code is the same as before, byte for byte.

``golden_c.txt`` has a hash of every file of some five hundred projects: all examples, the benchmark's models, random
graphs and random programs, each for other CPU devices and with other options. A change that only moves code leaves all
of them as they are::

    python -m tests.synth.golden_c                        # compare with the list, and show what changed
    python -m tests.synth.golden_c --update               # the change is meant: write the list anew
    python -m tests.synth.golden_c --against REV          # compare with the code of another revision
    python -m tests.synth.golden_c --against REV --full   # the same for all devices and options: half an hour
    python -m tests.synth.golden_c --only 'graph-01*'     # only these inputs

What changed is shown as a difference between what the code in the working tree emits and what that of a revision does:
the one that wrote the list, unless another is named. Both get the same inputs, those of the working tree.

Versions of the package and hashes of graphs and models are left out of the files, and of an error only its code counts.
"""

import argparse
import difflib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.synth import golden_emit
from tests.synth.golden_emit import digests, emitted
from tests.synth.golden_inputs import watched

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".txt")
HEAD = """\
# Hashes of the files of emitted projects. After a change that is meant: python -m tests.synth.golden_c --update
"""

Hashes = dict[str, dict[str, str]]
"""By project, which is called ``input/device/options``, and by file."""


def text_of(hashes: Hashes) -> str:
    """The list as a text, a line for each project."""
    lines = [" ".join([project, *map("=".join, files.items())]) for project, files in hashes.items()]
    return "\n".join([HEAD.rstrip(), *lines, ""])


def parsed(text: str) -> Hashes:
    """A list from its text."""
    lines = [line.split(" ") for line in text.splitlines() if not line.startswith("#")]
    return {project: dict(one.split("=") for one in files) for project, *files in lines}


def known() -> Hashes:
    """The hashes of the list."""
    return parsed(LIST.read_text(encoding="ascii")) if LIST.exists() else {}


def hashes_of(names: Sequence[str], look: Callable[[str, Mapping[str, bytes]], None] | None = None) -> Hashes:
    """The hashes of inputs, as the code is now; ``look`` gets every project and its files."""
    found = {}
    for name in names:
        one = watched()[name]
        with TemporaryDirectory() as folder:
            try:
                for choice, files in emitted(one.write(Path(folder)), one.listed):
                    found[f"{name}/{choice}"] = digests(files)
                    if look is not None:
                        look(f"{name}/{choice}", files)
            except Exception as error:
                error.add_note(f"the input is {name}")
                raise
    return found


def changes(before: Mapping[str, Mapping[str, str]], now: Hashes) -> dict[str, list[str]]:
    """The projects that are others now, and which of their files changed, came or went."""
    found = {}
    for project, files in now.items():
        old = before.get(project, {})
        others = sorted(path for path in {*old, *files} if old.get(path) != files.get(path))
        if others:
            found[project] = others
    return found


# --- the code of a revision -------------------------------------------------------------------------------------------


def list_revision() -> str:
    """The revision that wrote the list, so that its code emits what the list says."""
    command = ["git", "log", "-1", "--format=%H", "--", str(LIST)]
    return subprocess.check_output(command, cwd=ROOT, text=True).strip() or "HEAD"


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A folder with the sources of a revision."""
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = partial(subprocess.run, cwd=ROOT, check=True)
        git(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision])
        try:
            yield tree / "src"
        finally:
            git(["git", "worktree", "remove", "--force", str(tree)])


class TwoTrees:
    """The code of a revision and that of the working tree, with the same inputs."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._sources = {"before": source, "now": ROOT / "src"}
        self._folder = folder
        self._inputs = folder / "inputs"

    def add(self, name: str) -> None:
        """Make an input."""
        own = self._inputs / name
        if not own.exists():
            own.mkdir(parents=True)
            watched()[name].write(own).write(self._inputs / f"{name}.json")

    def _emit(self, when: str, projects: Sequence[str], *options: str) -> str:
        command = [sys.executable, "-P", golden_emit.__file__, str(self._inputs), *options]
        environment = {**os.environ, "PYTHONPATH": str(self._sources[when])}
        words = " ".join(projects)
        return subprocess.run(
            command, env=environment, input=words, text=True, check=True, stdout=subprocess.PIPE
        ).stdout

    def hashes(self, projects: Sequence[str]) -> tuple[Hashes, Hashes]:
        """The hashes of projects, before and now."""
        before, now = (dict(map(json.loads, self._emit(when, projects).splitlines())) for when in self._sources)
        return before, now

    def differences(self, projects: Sequence[str], most: int) -> Iterator[str]:
        """How the files of projects differ; of each file, at most so many lines."""
        for when in self._sources:
            self._emit(when, projects, "--into", str(self._folder / when))
        before, now = (self._folder / when for when in self._sources)
        for project in projects:
            every = [(root, one) for root in (before, now) for one in (root / project).rglob("*") if one.is_file()]
            for path in sorted({one.relative_to(root) for root, one in every}):
                yield from _difference(before / path, now / path, str(path), most)


def _difference(before: Path, now: Path, name: str, most: int) -> Iterator[str]:
    old, new = (path.read_bytes() if path.exists() else b"" for path in (before, now))
    if old == new:
        return
    if name.endswith(".bin"):
        yield f"{name}: other bytes; {len(old)} before, {len(new)} now"
        return
    left, right = old.decode().splitlines(), new.decode().splitlines()
    found = list(difflib.unified_diff(left, right, f"before/{name}", f"now/{name}", lineterm="", n=2))
    yield from found[:most]
    if len(found) > most:
        yield f"... and {len(found) - most} more lines (--lines)"


# --- the command ------------------------------------------------------------------------------------------------------


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the list anew")
    parser.add_argument("--against", metavar="REV", help="compare with the code of a revision")
    parser.add_argument("--full", action="store_true", help="with --against: all devices and options for every input")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="only these inputs")
    parser.add_argument("--show", type=int, default=6, metavar="N", help="projects whose differences are shown")
    parser.add_argument("--lines", type=int, default=60, metavar="N", help="lines shown of the difference of a file")
    options = parser.parse_args()
    if options.update and (options.only != "*" or options.against):
        parser.error("the list is written as a whole: --update stands alone")
    if options.full and not options.against:
        parser.error("the list does not have them: --full needs --against")
    return options


def _report(changed: Mapping[str, Sequence[str]], count: int, whom: str) -> None:
    print(f"{len(changed)} of {count} projects differ from {whom}")
    for project, files in changed.items():
        print(f"  {project}: {', '.join(files)}")


def _compare(names: Sequence[str], options: argparse.Namespace, find: Callable[[TwoTrees], list[str]]) -> None:
    revision = options.against or list_revision()
    with TemporaryDirectory() as folder, checked_out(revision) as source:
        trees = TwoTrees(source, Path(folder))
        for name in names:
            trees.add(name)
        shown = find(trees)[: options.show]
        if shown:
            print(f"\nbefore, the code of {revision[:12]}; now, that of the working tree\n", flush=True)
            for line in trees.differences(shown, options.lines):
                print(line)


def _with_list(names: Sequence[str], options: argparse.Namespace) -> int:
    before, now = known(), hashes_of(names)
    changed = changes(before, now)
    _report(changed, len(now), "the list")
    if options.update:
        LIST.write_text(text_of(now), encoding="ascii")
        return 0
    first = list(changed)[: options.show]
    if first:
        _compare([project.split("/")[0] for project in first], options, lambda _: first)
    return 1 if changed else 0


def _with_revision(names: Sequence[str], options: argparse.Namespace) -> int:
    choices = {name: one.choices if options.full else one.listed for name, one in watched().items()}
    projects = [f"{name}/{choice}" for name in names for choice in choices[name]]
    changed: dict[str, list[str]] = {}

    def find(trees: TwoTrees) -> list[str]:
        changed.update(changes(*trees.hashes(projects)))
        _report(changed, len(projects), options.against)
        return list(changed)

    _compare(names, options, find)
    return 1 if changed else 0


def main() -> int:
    options = _options()
    names = [name for name in watched() if fnmatch(name, options.only)]
    return (_with_revision if options.against else _with_list)(names, options)


if __name__ == "__main__":
    sys.exit(main())
