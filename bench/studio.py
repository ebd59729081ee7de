"""Figures of ``openinfer studio`` on large graphs, in a browser: opening, search, panning, and checks while typing."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from playwright.sync_api import Page
from tests.studio.serving import DRAWN, browser, served, watched, workspace

ROUNDS = 9
SIZES = (1_000, 10_000)
PATIENCE = 300_000
"""How many milliseconds to wait for the page; a machine with other work takes long."""


def text_of(count: int) -> str:
    """A graph of so many nodes: chains with shortcuts, a loop and scopes now and then."""
    lines = ["dynamic { x: f32[64]; }", "volatile { h: f32[64]; s: f32[64]; y: f32[64]; }", "block entry {"]
    lines += ["    transfer x >> h;", "    transfer x >> s;"]
    while len(lines) < count + 2:
        lines += ['    scope "layer" {', *["        op neg(h) >> h;"] * 6, "        op add(h, s) >> h;", "    }"]
        lines += ["    op relu(h) >> s;"]
    lines += ["    op add(h, s) >> y;", "    return y;", "}"]
    return "\n".join(lines)


def timed(what: Callable[[], object]) -> float:
    """How many milliseconds something takes."""
    start = perf_counter()
    what()
    return 1e3 * (perf_counter() - start)


def typed(page: Page) -> float:
    """From a keystroke until its check has come back and is drawn: the page's own clock says."""
    return float(
        page.evaluate(
            """() => new Promise((resolve) => {
                const before = studioBench.checked.value, start = performance.now();
                studioBench.text.value = studioBench.text.value + " ";
                const look = () => studioBench.checked.value !== before
                    && document.querySelector('.graph-canvas').dataset.drawn === 'true'
                    ? resolve(performance.now() - start) : setTimeout(look, 2);
                look();
            })"""
        )
    )


def panned(page: Page) -> tuple[float, float]:
    """The median and the longest time that one picture takes while everything is open and moves."""
    times = page.evaluate(
        """async () => {
            const times = [];
            for (let at = 0; at < 60; at++) {
                const start = performance.now();
                studioGraph.paintAt(at * 7, at * 11);
                times.push(performance.now() - start);
                await new Promise(requestAnimationFrame);
            }
            return times;
        }"""
    )
    return median(times), max(times)


def measure(page: Page, url: str) -> dict[str, float]:
    """The figures of one graph."""

    def opened() -> None:
        page.goto(url)
        page.wait_for_selector(DRAWN)

    found = {"open": median(timed(opened) for _ in range(3))}
    found["re-check after a keystroke"] = median(typed(page) for _ in range(ROUNDS))

    def searched() -> None:
        page.fill(".search input", "add")
        page.wait_for_selector(".search-results .hit")

    found["search"] = timed(searched)
    page.fill(".search input", "")

    def expanded() -> None:
        page.click("text=Expand all")
        page.wait_for_selector(".graph-view[data-arranging=false]")

    found["expand everything"] = timed(expanded)
    page.click("text=Fit")
    found["one picture, everything in sight"], found["the longest of 60"] = panned(page)
    return found


def main() -> None:
    with TemporaryDirectory() as folder, browser() as found:
        for count in SIZES:
            path = Path(folder) / f"nodes-{count}.oig"
            path.write_text(text_of(count), encoding="utf-8")
            with served(workspace(path)) as server, watched(found, server.url) as seen:
                seen.page.set_default_timeout(PATIENCE)
                print(f"{count:,} nodes")
                for name, milliseconds in measure(seen.page, server.url).items():
                    print(f"  {name:<34} {milliseconds:>8.1f} ms")


if __name__ == "__main__":
    main()
