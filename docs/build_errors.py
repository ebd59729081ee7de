"""Write docs/errors.md from the explanations of the codes and docs/index.md from the README."""

from pathlib import Path

from openinfer.errors import Code, explanation

DOCS = Path(__file__).parent


def error_page() -> str:
    """All explanations on one page."""
    body = [explanation(code).markdown.replace("# ", "## ", 1) for code in Code]
    return "\n".join(["# Error codes\n", "`openinfer explain CODE` prints these.\n", *body])


def index_page() -> str:
    """The README, with links as the site needs them."""
    return (DOCS.parent / "README.md").read_text(encoding="utf-8").replace("(docs/", "(")


if __name__ == "__main__":
    (DOCS / "errors.md").write_text(error_page(), encoding="utf-8")
    (DOCS / "index.md").write_text(index_page(), encoding="utf-8")
