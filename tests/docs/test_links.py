"""Relative links in the Markdown files of the repository lead to files that exist, and to headings in them."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def pages() -> list[str]:
    """All Markdown files, except those in folders that builds and tools make."""
    found: list[str] = []
    for folder, inside, files in os.walk(ROOT):
        inside[:] = [name for name in inside if not name.startswith(".") and name not in ("build", "node_modules")]
        found += [(Path(folder) / name).relative_to(ROOT).as_posix() for name in files if name.endswith(".md")]
    return sorted(name for name in found if not name.startswith("."))


def anchors(text: str) -> set[str]:
    """What headings can be linked by: lower case, words joined by dashes."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def leads_somewhere(page: str, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (ROOT / page).parent / name if name else ROOT / page
    return target.exists() and (not anchor or anchor in anchors(target.read_text(encoding="utf-8")))


def broken(page: str, text: str) -> list[str]:
    links = [link for link in LINK.findall(FENCE.sub("", text)) if "://" not in link and not link.startswith("mailto:")]
    return [link for link in links if not leads_somewhere(page, link)]


def test_all_pages_are_looked_at() -> None:
    assert {"README.md", "docs/tour.md", "docs/cookbook/stepping.md", "examples/digits/README.md"} <= set(pages())


@pytest.mark.parametrize("page", pages())
def test_relative_links_lead_somewhere(page: str) -> None:
    assert broken(page, (ROOT / page).read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found() -> None:
    links = "[a](nowhere.md) [b](tour.md#no-such-place) [c](#here) ![d](no.svg) [e](tour.md) [f](pipeline.svg)"
    assert broken("docs/faq.md", links) == ["nowhere.md", "tour.md#no-such-place", "#here", "no.svg"]


def test_the_gallery_has_every_example_and_what_their_pages_show() -> None:
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    names = {path.parent.name for path in ROOT.glob("examples/*/example.py")}
    assert set(re.findall(r"^\| (\w+) \|", gallery, re.MULTILINE)) == {"example", *names}
    shown = " ".join(path.read_text() for path in ROOT.glob("examples/*/README.md"))
    for block in re.findall(r"^```text\n(.*?)^```", gallery, re.MULTILINE | re.DOTALL):
        missing = [line for line in block.splitlines() if line not in shown]
        assert missing == []
