"""The shortest way through the page: it opens, draws, searches, steps and shows code, without an error."""

from tests.studio.serving import DIGITS, browser, served, watched, workspace


def test_the_page_opens_searches_steps_and_shows_code() -> None:
    with browser() as found, served(workspace(*DIGITS)) as server, watched(found, server.url) as seen:
        page = seen.page
        assert "openinfer studio" in page.title()
        seen.select("conv2d")
        page.wait_for_selector(".panel h2:text-is('conv2d')")
        page.wait_for_selector(".panel .doc")
        seen.see("step")
        page.click("text=Start")
        page.wait_for_selector(".next:has-text('op cast')")
        page.click(".step-controls >> text=Next")
        page.wait_for_selector(".next:has-text('op mul')")
        seen.see("code")
        page.wait_for_selector(".kernels tbody tr")
        page.wait_for_selector(".cm-kernel")
