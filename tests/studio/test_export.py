"""An exported file is one page: what a graph and its file are called stays text in it."""

import json
from html.parser import HTMLParser
from pathlib import Path

from tests.studio.serving import workspace

from openinfer.studio.export import exported

HOSTILE = """// </script><script>window.hacked = 1</script> </script x= \u2028
dynamic { x: f32; }
volatile { y: f32; }
block entry {
    scope "</script><img src=x onerror='window.hacked=1'>" {
        op neg(x) >> y;  // <!-- <script>window.hacked = 1</script>
    }
    return y;
}
"""


class Elements(HTMLParser):
    """The elements of a page, and what stands in them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(path: Path, text: str) -> Elements:
    path.write_text(text)
    found = Elements()
    found.feed(exported(workspace(path)))
    return found


def test_names_and_comments_add_no_element_to_an_exported_file(tmp_path: Path) -> None:
    plain = read(tmp_path / "plain.oig", "block entry { return; }\n")
    hostile = read(tmp_path / "<img src=x>.oig", HOSTILE)
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert not any(name.startswith("on") for _, attributes in hostile.found for name in attributes)


def test_an_exported_file_holds_the_text_as_it_is_and_names_no_address(tmp_path: Path) -> None:
    found = read(tmp_path / "g.oig", HOSTILE)
    data = next(text for text in found.texts if text.startswith('{"answers"'))
    assert "<" not in data, "browsers end the element at '</script ' already, which Python's parser does not"
    assert json.loads(data)["answers"]["open{}"]["text"] == HOSTILE
    links = [value for _, attributes in found.found for name, value in attributes.items() if name in ("src", "href")]
    assert links == ["data:,"]
    policy = next(attributes["content"] for _, attributes in found.found if attributes.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
