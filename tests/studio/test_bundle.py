"""What the wheel has is what the sources of the page say."""

from hashlib import sha256
from pathlib import Path

ASSETS = Path("src/openinfer/studio/assets")
SOURCES = Path("studio")


def test_the_bundle_was_made_of_the_sources_that_are_there() -> None:
    listed = {}
    for line in (ASSETS / "SOURCES.sha256").read_text(encoding="utf-8").splitlines():
        digest, path = line.split("  ", 1)
        listed[path] = digest
    found = {path.relative_to(SOURCES).as_posix() for path in (SOURCES / "src").rglob("*") if path.is_file()}
    found |= {"build.mjs", "package.json", "package-lock.json", "tsconfig.json"}
    assert found == set(listed), "run make studio"
    stale = [path for path in found if sha256((SOURCES / path).read_bytes()).hexdigest() != listed[path]]
    assert stale == [], "run make studio"


def test_sources_of_the_page_are_short_enough_to_read() -> None:
    long = {
        str(path): text.count("\n")
        for path in (SOURCES / "src").rglob("*.ts*")
        if (text := path.read_text()).count("\n") > 400
    }
    assert long == {}
