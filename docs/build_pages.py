"""Write the pages of the site that are made from other files: the overview, the ops, the error codes, the notes."""

import json
import re
from pathlib import Path
from typing import Any

from openinfer.errors import Code, explanation
from openinfer.ops.catalogue import catalogue_markdown, families
from openinfer.ops.types import ALL

DOCS = Path(__file__).parent
ROOT = DOCS.parent
TESTED = DOCS / "tested_ops.json"
"""What the suite of generated code noted when it ran: ``make test-devices``."""
MARKS = {"generic": "g", "avx2": "2", "avx512": "5", "neon": "n"}
COPIED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def error_page() -> str:
    """All explanations on one page."""
    body = [explanation(code).markdown.replace("# ", "## ", 1) for code in Code]
    return "\n".join(["# Error codes\n", "`openinfer explain CODE` prints these.\n", *body])


def tested_section() -> str:
    """Which ops ran on which dtypes as generated C, on which devices, within the numerics contract."""
    tested = json.loads(TESTED.read_text("ascii"))
    heads = [f"* **{MARKS[isa]}**: {_run_text(isa, facts)}" for isa, facts in sorted(tested.items())]
    names = [dtype.name for dtype in ALL]
    rows = [["Op", *names, "cases"], ["---"] * (len(names) + 2)]
    for record in (record for members in families().values() for record in members):
        counts = {isa: facts["ops"].get(record.name, {}) for isa, facts in tested.items()}
        cells = ["".join(mark for isa, mark in MARKS.items() if name in counts.get(isa, ())) for name in names]
        total = sum(sum(own.values()) for own in counts.values())
        rows.append([f"[{record.name}](#{record.name})", *cells, f"{total:,}"])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    about = (
        "Each op was compiled and run on the cases that its record generates, and at sizes around those of vectors and "
        "tiles; all results are as precise as its entry above says. A letter stands for a device:"
    )
    return "\n".join(["## Dtypes in generated C\n", about, "", *heads, "", table, ""])


def _run_text(isa: str, facts: dict[str, Any]) -> str:
    cases = sum(sum(own.values()) for own in facts["ops"].values())
    runner = f", in {facts['runner']}" if facts["runner"] else ""
    return f"{isa}, {cases:,} cases; {facts['compiler']}, `{facts['flags']}`{runner}"


def index_page() -> str:
    """The README, with links as the site needs them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("(docs/", "(")
    for name, page in COPIED.items():
        text = text.replace(f"({name})", f"({page})")
    return re.sub(r"\[([^]]+)\]\((?:LICENSE|examples/[^)]*)\)", r"\1", text)


if __name__ == "__main__":
    (DOCS / "errors.md").write_text(error_page(), encoding="utf-8")
    (DOCS / "ops.md").write_text(f"{catalogue_markdown()}\n{tested_section()}", encoding="utf-8")
    (DOCS / "index.md").write_text(index_page(), encoding="utf-8")
    for name, page in COPIED.items():
        (DOCS / page).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
