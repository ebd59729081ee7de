"""Everything the page does, in a browser: ``make test-studio``. Screenshots go to build/studio."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from tests.studio.serving import DIGITS, DRAWN, TALK, Watched, browser, served, watched, workspace

from openinfer.studio.export import exported

SHOTS = Path("build/studio")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    SHOTS.mkdir(parents=True, exist_ok=True)
    with browser() as found:
        yield found


@pytest.fixture
def talk(chromium: Browser) -> Iterator[Watched]:
    with served(workspace(*TALK, inputs=["temperature=0"], steps=3)) as server, watched(chromium, server.url) as seen:
        yield seen


@pytest.fixture
def digits(chromium: Browser) -> Iterator[Watched]:
    with served(workspace(*DIGITS)) as server, watched(chromium, server.url) as seen:
        yield seen


def shown(seen: Watched) -> dict[str, int]:
    """How many nodes and containers are drawn."""
    counts: dict[str, int] = seen.page.evaluate(
        "() => ({nodes: studioGraph.layout.nodes.length, containers: studioGraph.layout.containers.length})"
    )
    return counts


def drawn(seen: Watched, what: str) -> None:
    """Wait until the picture has some property."""
    seen.page.wait_for_function(f"() => studioGraph.layout.{what}")


POINT = """(id) => { const box = studioGraph.layout.places.get(id), {k, x, y} = studioGraph.camera;
    const place = document.querySelector('.graph-canvas').getBoundingClientRect();
    return [place.left + (box.x + box.width / 2) * k + x, place.top + (box.y + 12) * k + y]; }"""


def point_of(seen: Watched, id_: str) -> tuple[float, float]:
    """Where the middle of a node's upper edge is on the page."""
    x, y = seen.page.evaluate(POINT, id_)
    return float(x), float(y)


def test_containers_open_and_close(talk: Watched) -> None:
    page = talk.page
    everything = shown(talk)
    page.click("text=Collapse all")
    drawn(talk, f"nodes.length < {everything['nodes']}")
    closed = shown(talk)
    page.mouse.dblclick(*point_of(talk, "n20"))
    drawn(talk, f"containers.length > {closed['containers']}")
    page.click("text=Expand all")
    drawn(talk, f"nodes.length === {everything['nodes']}")
    assert shown(talk) == everything
    page.screenshot(path=SHOTS / "graph.png")


def test_a_graph_of_many_nodes_opens_collapsed_and_search_opens_what_is_around_a_node(
    chromium: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "long.oig"
    ops = "".join(f"    op {'abs' if at == 777 else 'neg'}(h) >> h;\n" for at in range(1_000))
    path.write_text(f"volatile {{ h: f32; }}\nblock entry {{\n{ops}    return;\n}}\n")
    with served(workspace(path)) as server, watched(chromium, server.url) as seen:
        assert shown(seen)["nodes"] < 60
        seen.select("abs")
        seen.page.wait_for_selector(".panel h2:text-is('abs')")
        drawn(seen, "places.has('n777')")
        inside = "420 < x && x < 1150 && 40 < y && y < 900"
        seen.page.wait_for_function(f"(id) => {{ const [x, y] = ({POINT})(id); return {inside}; }}", arg="n777")
        seen.page.screenshot(path=SHOTS / "collapsed.png")


def test_a_click_on_a_node_shows_its_line_op_operands_and_kernel(digits: Watched) -> None:
    page = digits.page
    page.mouse.click(*point_of(digits, "n9"))
    page.wait_for_selector(".panel h2:text-is('conv2d')")
    page.wait_for_selector(".cm-chosen:has-text('op conv2d(x, W1')")
    page.click(".operand:has-text('W1')")
    page.wait_for_selector(".panel .histogram rect")
    page.wait_for_selector(".facts >> text=digits_k1_conv2d_relu")
    page.screenshot(path=SHOTS / "panel.png")


def test_the_minimap_and_the_wheel_move_the_picture(digits: Watched) -> None:
    page = digits.page
    before = page.evaluate("() => ({...studioGraph.camera})")
    page.mouse.move(700, 500)
    page.mouse.wheel(0, -400)
    page.wait_for_function(f"() => studioGraph.camera.k > {before['k']}")
    nearer = page.evaluate("() => ({...studioGraph.camera})")
    page.click(".minimap", position={"x": 95, "y": 140})
    page.wait_for_function(f"() => studioGraph.camera.y < {nearer['y']}")


def test_an_edit_is_checked_and_drawn_at_once_and_errors_say_where(digits: Watched) -> None:
    page = digits.page
    page.click(".cm-line:has-text('op flatten')")
    page.keyboard.press("End")
    page.keyboard.type("\n    op nag(flat) >> flat;")
    page.wait_for_selector(".problems li.error:has-text(\"there is no op 'nag'\")")
    page.wait_for_selector(".cm-lintRange-error")
    page.wait_for_selector(".errors:has-text('1 error')")
    page.screenshot(path=SHOTS / "error.png")
    page.click("button.fix:has-text(\"change 'nag' to 'neg'\")")
    page.wait_for_selector(".cm-line:has-text('op neg(flat) >> flat;')")
    page.wait_for_selector(".no-problems")
    page.wait_for_selector(DRAWN)
    drawn(digits, "nodes.some((one) => one.node.label === 'neg')")


def test_completion_offers_ops_and_formatting_puts_the_text_in_order(digits: Watched) -> None:
    page = digits.page
    page.click(".cm-line:has-text('op flatten')")
    page.keyboard.press("End")
    page.keyboard.type("\n   op sig")
    page.wait_for_selector(".cm-tooltip-autocomplete >> text=sigmoid")
    page.screenshot(path=SHOTS / "completion.png")
    page.keyboard.press("Escape")
    for _ in range(len("sig")):
        page.keyboard.press("Backspace")
    page.keyboard.type("neg( flat )>>flat;")
    page.click("button:text-is('Format')")
    page.wait_for_selector(".cm-line:has-text('op neg(flat) >> flat;')")


def test_breakpoints_watches_edits_and_the_way_back(talk: Watched) -> None:
    page = talk.page
    talk.see("step")
    page.click("text=Start")
    page.wait_for_selector(".next:has-text('op embedding')")
    page.fill("[aria-label='new breakpoint']", "if l == 1")
    page.press("[aria-label='new breakpoint']", "Enter")
    page.wait_for_selector(".stops >> text=if l == 1")
    page.click("text=Continue")
    page.wait_for_selector(".where .chip:has-text('l = 1')")
    page.wait_for_selector(".stopped")
    page.fill("[aria-label='new watch']", "h[0]")
    page.press("[aria-label='new watch']", "Enter")
    page.wait_for_selector(".watch >> text=h[0]")
    page.click("[data-variable=h]")
    page.wait_for_selector(".looked .statistics")
    page.fill("[aria-label='what to edit']", "h[0]")
    page.fill("[aria-label='new value']", "9.5")
    page.click("text=Set")
    page.wait_for_selector(".watch >> text=9.5")
    page.click(".step-controls >> text=Next")
    talk.settled()
    page.wait_for_selector("[data-variable=keys] .growth")
    page.click(".looked [role=tab]:has-text('Heat map')")
    page.screenshot(path=SHOTS / "step.png")
    page.click("text=Back")
    page.wait_for_selector(".where .chip:has-text('l = 1')")
    page.wait_for_selector(".watch >> text=9.5")
    page.keyboard.press("F10")
    talk.settled()


def test_a_click_beside_a_line_sets_a_breakpoint_there(talk: Watched) -> None:
    page = talk.page
    talk.see("step")
    page.click("text=Start")
    page.wait_for_selector(".next")
    line = next(at for at, text in enumerate(TALK[0].read_text().splitlines(), 1) if "op rms_norm(h, norm1" in text)
    talk.select("norm1")
    number = page.locator(f".cm-lineNumbers .cm-gutterElement:text-is('{line}')").bounding_box()
    gutter = page.locator(".stop-gutter").bounding_box()
    assert number is not None
    assert gutter is not None
    page.mouse.click(gutter["x"] + 6, number["y"] + 8)
    page.wait_for_selector(f".stops >> text=line {line}")
    page.wait_for_selector(".stop-mark >> visible=true")
    page.click("text=Continue")
    page.wait_for_selector(".next:has-text('op rms_norm(h, norm1[l])')")
    page.wait_for_selector(".cm-current:has-text('rms_norm')")


def test_traces_are_compared_and_their_difference_is_marked(digits: Watched, tmp_path: Path) -> None:
    page = digits.page
    digits.see("timeline")
    page.click("text=Run in the simulator")
    digits.settled()
    page.click("text=Run on the device")
    page.wait_for_selector("button:text-is('Compare')", timeout=60_000)
    digits.settled()
    page.click("button:text-is('Compare')")
    page.wait_for_selector(".same")
    page.click("text=Measure kernels")
    page.wait_for_selector(".roofline circle", timeout=60_000)
    page.screenshot(path=SHOTS / "timeline.png")
    trace = json.loads(changed_trace())
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(trace))
    page.set_input_files("input[type=file]", path)
    page.wait_for_selector("option:has-text('changed.json')", state="attached")
    page.locator(".bar select").nth(2).select_option("changed.json")
    page.click("button:text-is('Compare')")
    page.wait_for_selector(".differs >> text=conv2d")
    page.screenshot(path=SHOTS / "difference.png")


def test_each_trace_has_the_width_of_the_page_unless_all_have_one_scale(digits: Watched) -> None:
    """The simulator takes hundreds of times as long as a device: on its scale, events of the device are a line."""
    page = digits.page
    digits.see("timeline")
    page.click("text=Run in the simulator")
    digits.settled()
    page.click("text=Run on the device")
    page.wait_for_selector("text=one time scale")
    assert len(picked_traces(page)) == 2
    page.check("text=one time scale")
    assert picked_traces(page) == {"simulator"}


def picked_traces(page: Page) -> set[str]:
    """The traces of the events that are in the right half of the lanes."""
    lanes = page.locator("canvas.lanes")
    box = lanes.bounding_box()
    assert box is not None
    found = set()
    for y in range(0, int(box["height"]), 10):
        for part in (0.55, 0.7, 0.85):
            lanes.hover(position={"x": box["width"] * part, "y": y})
            if lanes.get_attribute("title"):
                lanes.click(position={"x": box["width"] * part, "y": y})
                found.add(page.inner_text(".picked .quiet").split(" · ")[1])
    return found


def changed_trace() -> str:
    """A trace of the digits in which a convolution has another result."""
    work = workspace(*DIGITS)
    work.trace_simulator([], 1)
    events = json.loads(work.traces["simulator"].text())
    first = next(one for one in events if one["op_name"] == "conv2d")
    first["outputs"][0] |= {"digest": "00000000", "max": 1e6}
    return json.dumps(events)


@pytest.mark.parametrize("device", ["host", "lavapipe", "h200"])
def test_code_memory_and_the_ledger_know_the_nodes(digits: Watched, device: str) -> None:
    page = digits.page
    digits.see("code")
    page.select_option(".device select", device)
    digits.settled()
    page.click(".kernels tr:has-text('conv2d_relu') >> nth=0")
    page.wait_for_selector(".cm-kernel:has-text('conv2d')")
    page.screenshot(path=SHOTS / f"code-{device}.png")
    page.click("text=Why not fused")
    page.wait_for_selector(".ledger li")
    page.click(".ledger .link >> nth=0")
    page.wait_for_selector(".cm-chosen")
    digits.see("memory")
    page.wait_for_selector(".arena .request")
    page.wait_for_selector(".culprits tr")
    page.screenshot(path=SHOTS / f"memory-{device}.png")
    digits.see("graph")
    page.wait_for_selector(".panel h2")


def test_code_follows_the_text_and_says_why_it_cannot(digits: Watched) -> None:
    page = digits.page
    digits.see("code")
    page.wait_for_selector(".code-columns[data-stale=false] .kernels")
    page.click(".cm-line:has-text('op flatten')")
    page.keyboard.press("End")
    page.keyboard.type(" op nag(flat) >> flat;")
    page.wait_for_selector(".code-view .stale:has-text('1 error')")
    page.wait_for_selector(".code-columns[data-stale=true]")
    page.click("button.fix:has-text(\"change 'nag' to 'neg'\")")
    page.wait_for_selector(".code-columns[data-stale=false] .kernels >> text=neg")
    assert page.locator(".failure").count() == 0


def test_without_sizes_the_views_of_the_plan_say_what_they_need(chromium: Browser) -> None:
    work = workspace(Path("examples/graphs/branching.oig"))
    with served(work) as server, watched(chromium, server.url) as seen:
        for view in ("memory", "code"):
            seen.see(view)
            seen.page.wait_for_selector(f".{view}-view .nothing:has-text('--model')")
        assert seen.page.locator(".failure").count() == 0


HOSTILE = """// </script><script>window.hacked = 1</script>
dynamic { x: f32; }
volatile { y: f32; }
block entry {
    scope "</script><img src=x onerror='window.hacked=1'>" {
        op neg(x) >> y;  // <script>window.hacked = 1</script>
    }
    scope "\\u003cscript\\u003ewindow.hacked=1" { op abs(y) >> y; }
    return y;
}
"""


def test_names_cannot_become_code(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "<img src=x onerror=window.hacked=1>.oig"
    path.write_text(HOSTILE)
    work = workspace(path)
    with served(work) as server, watched(chromium, server.url) as seen:
        seen.select("img")
        seen.page.wait_for_selector(".panel h2")
        seen.see("step")
        seen.page.click("text=Start")
        seen.page.wait_for_selector(".next")
        seen.see("code")
        seen.settled()
        assert seen.page.evaluate("() => window.hacked") is None
        assert seen.page.locator("img").count() == 0
    out = tmp_path / "view.html"
    out.write_text(exported(work))
    with watched(chromium, out.as_uri()) as seen:
        assert seen.page.evaluate("() => window.hacked") is None
        assert seen.page.locator("img").count() == 0


def test_an_export_needs_nothing_but_itself(chromium: Browser, tmp_path: Path) -> None:
    out = tmp_path / "view.html"
    out.write_text(exported(workspace(*DIGITS)))
    with watched(chromium, out.as_uri()) as seen:
        page = seen.page
        assert page.locator("[data-view=step]").count() == 0
        seen.select("conv2d")
        page.wait_for_selector(".panel h2:text-is('conv2d')")
        page.wait_for_selector(".facts >> text=digits_k1_conv2d_relu")
        page.click(".operand:has-text('W1')")
        page.wait_for_selector(".panel .histogram rect")
        page.screenshot(path=SHOTS / "export.png")
        seen.see("code")
        page.wait_for_selector(".cm-kernel")
        seen.see("memory")
        page.wait_for_selector(".arena .request")
        seen.see("timeline")
        page.wait_for_selector(".lanes")


def test_it_can_be_read_in_the_dark(chromium: Browser) -> None:
    with served(workspace(*TALK)) as server, watched(chromium, server.url) as seen:
        seen.page.emulate_media(color_scheme="dark")
        seen.page.wait_for_function("() => matchMedia('(prefers-color-scheme: dark)').matches")
        seen.page.wait_for_timeout(300)  # for the picture alone: nothing is asserted of it
        seen.page.screenshot(path=SHOTS / "dark.png")
