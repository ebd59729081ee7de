"""Write the sources of the site into ``build/pages``: the pages of ``docs`` and those made from other files.

The lists of ops and of error codes are written into ``docs`` itself.

Pages are written so that their links work in the repository. On the site some files stand elsewhere, and files that are
not there at all are only named.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from os.path import normpath, relpath
from pathlib import Path, PurePosixPath
from typing import Any

from openinfer.errors import Code, explanation
from openinfer.ops.catalogue import catalogue_markdown, families
from openinfer.ops.types import ALL
from openinfer.synth.targets.cuda.dialect import FLAGS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COPIED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
TESTED = DOCS / "tested_ops.json"
"""What the suite of generated code noted when it ran: ``make test-devices``."""
ON_GPU = {
    "h200": ("h200.json", "-V --target-env vulkan1.2"),
    "h200-cuda": ("h200-cuda.json", " ".join((*FLAGS, "-arch=sm_90a"))),
}
"""What a GPU did, and what the compiler was told: ``make test-h200``."""
MARKS = {
    "generic": "g",
    "avx2": "2",
    "avx512": "5",
    "neon": "n",
    "lavapipe": "v",
    "h200": "h",
    "h200-cuda": "u",
    "vhdl": "f",
}
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/README.md"))

_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?\[([^]]*)\])\(([^)#\s]+)(#[^)\s]*)?\)")


def text_of(path: Path) -> str:
    """The text of a file, with the links that the site needs."""
    return for_site(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())


def for_site(text: str, source: str) -> str:
    """The text of the file ``source``, with the links that the site needs; code stays as it is."""
    here = PurePosixPath(source).parent
    page_folder = PurePosixPath(page_of(source) or "").parent

    def moved(link: re.Match[str]) -> str:
        shown, words, target, anchor = link.groups()
        if "://" in target:
            return link[0]
        page = page_of(normpath(here / target))
        return f"{shown}({relpath(page, page_folder)}{anchor or ''})" if page else str(words)

    return "".join(part if part.startswith("```") else _LINK.sub(moved, part) for part in _FENCE.split(text))


def page_of(path: str) -> str | None:
    """Where a file of the repository stands on the site, None if it does not."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "examples/README.md":
        return "gallery.md"
    folder = next((one for one in EXAMPLES if path.startswith(f"examples/{one.name}/")), None)
    if folder is None:
        return COPIED.get(path)
    name = PurePosixPath(path).name
    page = f"examples/{folder.name}.md"
    return {"README.md": page}.get(name, f"{page}#{anchor_of(name)}" if name.endswith(".oig") else None)


def anchor_of(heading: str) -> str:
    """The anchor that the heading of a graph gets."""
    return re.sub(r"[^\w-]", "", heading)


def error_page() -> str:
    """All explanations on one page."""
    body = [explanation(code).markdown.replace("# ", "## ", 1) for code in Code]
    return "\n".join(["# Error codes\n", "`openinfer explain CODE` prints these.\n", *body])


def tested_section() -> str:
    """Which ops ran on which dtypes as generated code, on which devices, within the numerics contract."""
    tested = json.loads(TESTED.read_text("ascii"))
    for name, (file, flags) in ON_GPU.items():
        known = json.loads((DOCS / file).read_text("ascii"))
        device = known["device"]
        how = {"compiler": device["compiler"], "flags": flags, "runner": device["driver"]}
        tested[name] = {**how, "ops": known["ops"]["ops"]}
    heads = [f"* **{MARKS[isa]}**: {_run_text(isa, facts)}" for isa, facts in sorted(tested.items())]
    names = [dtype.name for dtype in ALL]
    rows = [["Op", *names, "cases"], ["---"] * (len(names) + 2)]
    for record in (record for members in families().values() for record in members):
        counts = {isa: facts["ops"].get(record.name, {}) for isa, facts in tested.items()}
        cells = [
            "".join(mark if counts[isa][name] else "-" for isa, mark in MARKS.items() if name in counts.get(isa, ()))
            for name in names
        ]
        total = sum(sum(own.values()) for own in counts.values())
        rows.append([f"[{record.name}](#{record.name})", *cells, f"{total:,}"])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    about = (
        "Each op was compiled and run on the cases that its record generates, in C also at sizes around those of "
        "vectors and tiles; all results are as precise as its entry above says. Code of AVX2 and NEON that "
        "equals that of generic ran in two cases of each dtype. A letter stands for a device: `v` and `h` for "
        "compute shaders on Vulkan, `u` for CUDA, `f` for circuits in VHDL (integers alone; a dash where a "
        "circuit refuses the op with E805, because it computes with floats), the others for C."
    )
    return "\n".join(["## Dtypes in generated code\n", about, "", *heads, "", table, ""])


def _run_text(isa: str, facts: dict[str, Any]) -> str:
    cases = sum(sum(own.values()) for own in facts["ops"].values())
    runner = f", in {facts['runner']}" if facts["runner"] else ""
    return f"{isa}, {cases:,} cases; {facts['compiler']}, `{facts['flags']}`{runner}"


def command_page() -> str:
    """Every command with its arguments and options, as typer tells them."""
    command = [sys.executable, "-m", "typer", "openinfer.cli.app", "utils", "docs", "--name", "openinfer"]
    text = subprocess.run([*command, "--title", "Command line"], check=True, capture_output=True, text=True).stdout
    listed = re.compile(r"\*\*Commands\*\*:\n.*?(?=\n##|\Z)", re.DOTALL)  # typer cuts these lines off
    return listed.sub("", text)


def example_page(folder: Path) -> str:
    """The README of an example, and its graphs."""
    graphs = [
        f"## {path.name}\n\n```oig\n{path.read_text(encoding='utf-8')}```\n" for path in sorted(folder.glob("*.oig"))
    ]
    return "\n".join([text_of(folder / "README.md"), *graphs])


def pages() -> Iterator[tuple[str, str]]:
    """The path of each page on the site, and its text."""
    for path in DOCS.rglob("*.md"):
        yield path.relative_to(DOCS).as_posix(), text_of(path)
    for source, page in COPIED.items():
        yield page, text_of(ROOT / source)
    for folder in EXAMPLES:
        yield f"examples/{folder.name}.md", example_page(folder)
    yield "cli.md", command_page()


def kept_pages() -> dict[Path, str]:
    """Pages that are made, but stand in the repository: people look for them there."""
    ops = f"{catalogue_markdown()}\n{tested_section()}"
    return {DOCS / "errors.md": error_page(), DOCS / "ops.md": ops}


def write_pages(folder: Path) -> None:
    """Write everything anew into a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    for page, text in pages():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")
    for file in [*DOCS.rglob("*.svg"), *DOCS.rglob("*.png"), DOCS / "site.css"]:
        (folder / file.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / file.relative_to(DOCS))


if __name__ == "__main__":
    for path, text in kept_pages().items():
        path.write_text(text, encoding="utf-8")
    write_pages(ROOT / "build" / "pages")
