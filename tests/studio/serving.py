"""A studio at work for tests, and a browser that looks at it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, sync_playwright

from openinfer.cli.studio import opened_workspace
from openinfer.studio.server import StudioServer
from openinfer.studio.workspace import Workspace

DIGITS = (Path("examples/digits/digits.oig"), Path("examples/digits/digits.oinf"))
TALK = (Path("examples/talk/decode.oig"), Path("examples/talk/talk.oinf"))
DRAWN = ".graph-canvas[data-drawn=true]"


def workspace(path: Path, model: Path | None = None, *, inputs: Sequence[str] = (), steps: int = 1) -> Workspace:
    """A workspace as the command opens it."""
    return opened_workspace(str(path), None if model is None else str(model), None, inputs=inputs, steps=steps)


@contextmanager
def served(work: Workspace) -> Iterator[StudioServer]:
    """A server in a thread of its own."""
    server = StudioServer(work)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(lambda _url: ready.set(),), daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)


@dataclass
class Watched:
    """A page, and everything about it that should not have been."""

    page: Page
    wrong: list[str] = field(default_factory=list)

    def settled(self) -> None:
        """Wait until nothing is being done."""
        self.page.wait_for_selector(".busy", state="detached", timeout=60_000)

    def see(self, view: str) -> None:
        """Go to a view."""
        self.page.click(f"[data-view={view}]")

    def select(self, word: str) -> None:
        """Search for a node, and select the first that is found."""
        self.page.fill(".search input", word)
        self.page.press(".search input", "Enter")
        self.page.fill(".search input", "")


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, as Debian has it, without a window."""
    program = which("chromium")
    assert program is not None, "the tests of the studio need chromium: apt-get install chromium"
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


@contextmanager
def watched(found: Browser, url: str) -> Iterator[Watched]:
    """A page that notes errors, and requests that leave the studio."""
    page = found.new_page(viewport={"width": 1500, "height": 900})
    seen = Watched(page)

    def told(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            seen.wrong.append(f"console: {message.text}")

    def asked(request: Request) -> None:
        if not request.url.startswith((url, "data:", "blob:")):
            seen.wrong.append(f"request: {request.url}")

    def only_here(route: Route) -> None:
        if route.request.url.startswith((url, "data:", "blob:")):
            route.continue_()
        else:
            route.abort()

    page.on("console", told)
    page.on("pageerror", lambda error: seen.wrong.append(f"error: {error}"))
    page.on("request", asked)
    page.route("**/*", only_here)
    page.set_default_timeout(60_000)
    page.goto(url)
    page.wait_for_selector(DRAWN)
    try:
        yield seen
    finally:
        page.close()
    assert seen.wrong == []
