"""What a memory plan says to people."""

import json
import xml.etree.ElementTree as ET
from functools import partial
from itertools import pairwise

from openinfer.synth.memory.arena import Request
from openinfer.synth.memory.arena import placed as placed_at
from openinfer.synth.report.arena_map import arena_svg, arena_text, describe

placed = partial(placed_at, alignment=64)
REQUESTS = [
    Request(100, ((0, 1),), "a"),
    Request(256, ((1, 2),), "b"),
    Request(64, ((2, 3),), "c"),
    Request(64, ((0, 0), (3, 3)), "d"),
]


def test_the_figures() -> None:
    found = describe(REQUESTS, placed(REQUESTS))
    assert json.loads(json.dumps(found)) == found
    assert (found["peak_bytes"], found["lower_bound_bytes"], found["gap_bytes"]) == (384, 384, 0)
    assert (found["peak_position"], found["peak_owners"]) == (1, ["b", "a"])
    assert found["live_bytes"] == [192, 384, 320, 128]
    assert found["requests"][3] == {"label": "d", "offset": 0, "nbytes": 64, "lifetime": [[0, 0], [3, 3]]}


def test_the_figures_of_nothing() -> None:
    found = describe([], placed([]))
    assert (found["peak_bytes"], found["peak_position"], found["peak_owners"]) == (0, None, [])


def test_the_map_as_text() -> None:
    assert arena_text(REQUESTS, placed(REQUESTS), height=6) == "\n".join(
        [
            "384 B |aa..",
            "      |aacc",
            "      |.bb.",
            "      |.bb.",
            "      |.bb.",
            "  0 B |dbbd",
        ]
    )
    assert arena_text([], placed([])) == "the arena is empty"


def test_the_picture_has_a_rectangle_for_each_stretch() -> None:
    drawn = ET.fromstring(arena_svg(REQUESTS, placed(REQUESTS)))
    titles = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 5
    assert "d: 64 B at 0, alive from 3 to 3" in titles


def test_names_cannot_break_the_picture() -> None:
    hostile = [
        "</title><script>",
        "&amp;",
        '"quoted"',
        "\x00\x1b[31m",
        "\u202eright to left",
        "\U0001f40d" * 20,
        "]]>",
        "",
    ]
    requests = [Request(4096, ((number, number + 3),), name) for number, name in enumerate(hostile)]
    text = arena_svg(requests, placed(requests), positions=hostile)
    assert text.isascii()
    drawn = ET.fromstring(text)
    assert not list(drawn.iter("{http://www.w3.org/2000/svg}script"))
    harmless = [Request(one.nbytes, one.lifetime, "x" * len(one.label)) for one in requests]
    plain = ET.fromstring(arena_svg(harmless, placed(harmless), positions=["x" * len(one) for one in hostile]))
    assert [one.tag for one in drawn.iter()] == [one.tag for one in plain.iter()]


def test_a_picture_of_nothing_is_a_picture() -> None:
    ET.fromstring(arena_svg([], placed([])))


def test_every_step_is_named_on_the_axis_when_there_are_many() -> None:
    many = [Request(4096, ((at, at + 1),), f"value_{at}") for at in range(60)]
    names = [f"k{at}_matmul_add_relu" for at in range(61)]
    drawn = ET.fromstring(arena_svg(many, placed(many), positions=names))
    texts = list(drawn.iter("{http://www.w3.org/2000/svg}text"))
    on_the_axis = [one for one in texts if one.text in names]
    assert [one.text for one in on_the_axis] == names
    places = [float(one.get("x", "")) for one in on_the_axis]
    assert min(b - a for a, b in pairwise(places)) >= 13  # a line of text is that high, and the names are turned
    inside = {one.text for one in texts if (one.text or "").startswith("value_")}
    assert len(inside) == 60  # narrow rectangles have their names along their height
    assert max(places) < float(drawn.get("width", ""))
