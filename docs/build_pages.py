"""Write the pages of the site that are made from other files: the overview, the ops, the error codes, the notes."""

import re
from pathlib import Path

from openinfer.errors import Code, explanation
from openinfer.ops.catalogue import catalogue_markdown

DOCS = Path(__file__).parent
ROOT = DOCS.parent
COPIED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def error_page() -> str:
    """All explanations on one page."""
    body = [explanation(code).markdown.replace("# ", "## ", 1) for code in Code]
    return "\n".join(["# Error codes\n", "`openinfer explain CODE` prints these.\n", *body])


def index_page() -> str:
    """The README, with links as the site needs them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("(docs/", "(")
    for name, page in COPIED.items():
        text = text.replace(f"({name})", f"({page})")
    return re.sub(r"\[([^]]+)\]\((?:LICENSE|examples/[^)]*)\)", r"\1", text)


if __name__ == "__main__":
    (DOCS / "errors.md").write_text(error_page(), encoding="utf-8")
    (DOCS / "ops.md").write_text(catalogue_markdown(), encoding="utf-8")
    (DOCS / "index.md").write_text(index_page(), encoding="utf-8")
    for name, page in COPIED.items():
        (DOCS / page).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
