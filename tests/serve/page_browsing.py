"""A browser at the page: every request must stay with the server, no script may fail, and keys alone can do it all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Locator, Page, Route, sync_playwright

from tests.browser import browser

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WAIT = 20_000  # milliseconds until a test gives up on the page


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium for several pages."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser(), args=FLAGS)
        yield opened
        opened.close()


@contextmanager
def open_page(opened: Browser, url: str, expect: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
    """The page at a window's size; at the end nothing may have failed but the refusals that a test expects."""
    context = opened.new_context(**{"viewport": {"width": 1100, "height": 800}, **options})
    context.set_default_timeout(WAIT)
    page, failures, strangers = context.new_page(), list[str](), list[str]()
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("console", lambda message: failures.append(message.text) if message.type == "error" else None)

    def watch(route: Route) -> None:
        if urlsplit(route.request.url).netloc == urlsplit(url).netloc:
            route.fallback()
        else:
            strangers.append(route.request.url)
            route.abort()

    context.route("**/*", watch)
    page.goto(url)
    page.locator("nav a[aria-current], #key:not([hidden])").first.wait_for()
    yield page
    context.close()
    assert [text for text in failures if not any(part in text for part in expect)] == []
    assert strangers == []


def focused(page: Page, script: str) -> Any:
    """Something about the element that has the focus."""
    return page.evaluate(f"(() => {{ const at = document.activeElement; return {script}; }})()")


def tab_to(page: Page, selector: str, most: int = 40) -> None:
    """Press Tab until the focus is there, as a person without a mouse would."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if focused(page, f"at.matches({selector!r})"):
            return
    raise AssertionError(f"Tab never reached {selector}")


def choose_by_keys(page: Page, name: str) -> Locator:
    """From the page's top to a section, by Tab and Enter."""
    page.evaluate("document.activeElement.blur(); document.body.focus()")
    tab_to(page, f'nav a[href="#{name}"]')
    page.keyboard.press("Enter")
    page.locator(f"#{name}-title:focus").wait_for()
    return page.locator(f"section#{name}")


def fill_by_keys(page: Page, section: Locator, *texts: str) -> Locator:
    """Type into the fields in their order, reach the button by Tab, press it; the result."""
    for text in texts:
        page.keyboard.press("Tab")
        assert focused(page, "at.matches('textarea, input')")
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.keyboard.insert_text(text)
    tab_to(page, "button.main")
    page.keyboard.press("Enter")
    return result_of(section)


def result_of(section: Locator) -> Locator:
    """The answer, once it is there and the button is free again."""
    section.locator("button.main:not([aria-busy])").wait_for()
    result = section.locator(".result")
    result.locator(".figures, .error").first.wait_for()
    return result
