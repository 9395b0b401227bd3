"""The page as people meet it: a real server, a real browser, and a store with a past.

Each page under test is watched: any error on its console, and any request that leaves its server, fails the test.
Without a browser the tests are skipped and say so; with ``RUNEBOOK_BROWSER=required`` they fail.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory
from tests.browser.story import tell
from tests.chromium import started_browser
from tests.fork_server import starter
from tests.server.conftest import environment
from tests.stores import words_only

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request


PATIENCE_MS = 10_000
_REFUSED = "Failed to load resource: the server responded with a status of "
_STOP_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Site:
    """A running page: its ``origin``, the ``key`` that opens it, the ``home`` of its store."""

    origin: str
    key: str
    home: Path

    @property
    def address(self) -> str:
        """With the key, as it is printed."""
        return f"{self.origin}/#key={self.key}"


@dataclass  # no slots: Playwright marks the objects whose methods it calls
class Watch:
    """What a page did that it should not; ``expected``: statuses, and errors of the network, that the test provokes."""

    origin: str
    expected: set[int | str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)

    def console(self, message: ConsoleMessage) -> None:
        refused = message.text.removeprefix(_REFUSED)[:3] if message.text.startswith(_REFUSED) else ""
        provoked = {int(refused)} if refused.isdigit() else {word for word in message.text.split() if "::" in word}
        if message.type == "error" and not provoked & self.expected:
            self.complaints.append(f"console: {message.text} {message.location.get('url', '')}")

    def request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:", "blob:")):
            self.complaints.append(f"request to {request.url}")


Visit = Callable[..., "Page"]


@contextmanager
def serving_page(home: Path, *options: str) -> Iterator[Site]:
    """``runebook ui`` on the store at ``home``."""
    process = starter().program(
        *("ui", "--home", str(home), "--no-open", "--port", "0", "--set", "embedding.provider=none"),
        *("--set", "maintenance.automatic=off", *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().decode().strip().removeprefix("runebook: ")
        origin, _, key = address.partition("/#key=")
        assert key, "the server did not say where its page is"
        yield Site(origin, key, home)
    finally:
        process.stdout.close()
        process.terminate()
        process.wait(_STOP_SECONDS)


@contextmanager
def watched_page(browser: Browser, site: Site, **options: Any) -> Iterator[tuple[Page, Watch]]:
    """A fresh profile with one page, watched to its end; ``options`` are those of a Playwright context."""
    settings: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"} | options
    context = browser.new_context(reduced_motion="reduce", **settings)
    try:
        context.set_default_timeout(PATIENCE_MS)
        page, watch = context.new_page(), Watch(site.origin)
        page.on("console", watch.console)
        page.on("pageerror", lambda error: watch.complaints.append(f"uncaught: {error}"))
        page.on("request", watch.request)
        yield page, watch
        assert watch.complaints == []
    finally:
        context.close()


@contextmanager
def opened_page(
    browser: Browser, site: Site, place: str = "", *, expected: tuple[int | str, ...] = (), **options: Any
) -> Iterator[Page]:
    """A page opened as the owner of its store opens it, at ``place``; ``page.watch`` is what watches it."""
    with watched_page(browser, site, **options) as (page, watch):
        page.watch = watch  # type: ignore[attr-defined]
        watch.expected.update(expected)
        page.goto(site.address)
        page.wait_for_selector("main h1")
        if place:
            page.evaluate("place => { location.hash = place }", place)
        yield page


@pytest.fixture(scope="module")  # Playwright keeps an event loop in the thread: no test elsewhere may find it there
def browser() -> Iterator[Browser]:
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server a module, on the store of ``story`` with its hostile memory."""
    home = tmp_path_factory.mktemp("site")
    tell(home, hostile=True)
    with serving_page(home) as site:
        yield site


def commit(home: Path, title: str, content: str, review: str = "off") -> None:
    """What a process beside the server does: this one."""
    with open_memory(words_only(home, review=review)) as memory:
        if review == "off":
            memory.commit(CommitRequest(content, memory_type="notes", fields={"title": title}))
            return
        memory.commit(CommitRequest(messages=[{"role": "user", "content": content}], session_id="talk"))
        data = {"memory_type": "notes", "fields": {"title": title, "content": content}}
        operations = {"reasoning": "Asked for.", "write_operations": [{"memory_data": data}]}
        memory.commit(CommitRequest(operations=operations, session_id="talk"))


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """A page on a store of the test's own."""
    commit(tmp_path / "home", "Tea", "Green tea in the morning.")
    with serving_page(tmp_path / "home") as site:
        yield site


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with opened_page(browser, site) as page:
        yield page


@pytest.fixture
def tab(browser: Browser, own_site: Site) -> Iterator[Page]:
    """A page on the store of the test's own."""
    with opened_page(browser, own_site) as page:
        yield page


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """``visit("#/new", locale="zh-CN", …)``: another profile of its own; watched likewise."""
    with ExitStack() as stack:

        def open_page(place: str = "#/", **options: Any) -> Page:
            return stack.enter_context(opened_page(browser, site, place, **options))

        yield open_page
