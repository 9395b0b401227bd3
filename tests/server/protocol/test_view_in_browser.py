"""The views in Chromium, as a host shows them: sandboxed, of another origin, under the policy that they ask for.

The host is a page of this folder that speaks the protocol's other half; behind it are the SDK's client and the real
server. A message on the console or a request that leaves the two origins fails a test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.chromium import started_browser
from tests.server.conftest import Caller

if TYPE_CHECKING:
    from playwright.sync_api import FrameLocator, Page, Route


pytestmark = pytest.mark.slow

HOST, FRAME = "http://host.test/", "http://frame.test/view"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> [click](javascript:alert(3)) **bold** 恶意"
Shown = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, connect: Callable[..., Any]) -> Iterator[Caller]:
    home = tmp_path_factory.mktemp("apps") / "home"
    with connect(home, "auto", "--set", "embedding.provider=none") as caller:
        for topic, content in (
            ("Tea", "# Tea\n\nOnly **green tea** 绿茶, never coffee.\n\n- see https://tea.example/leaves\n- 80 °C"),
            ("Hostile", f"About tea: {HOSTILE}"),
        ):
            caller.facts("commit_memory", memory_type="preferences", fields={"topic": topic, "content": content})
        caller.facts("commit_memory", messages=[{"role": "user", "content": "Which tea? 喝什么茶？"}], session_id="s1")
        yield caller


@pytest.fixture
def shown(browser: Any, server: Caller) -> Iterator[Shown]:
    """``shown(tool, arguments)`` calls the tool and shows its result in its view: the page and the view's frame."""
    with ready_page(browser, server) as (page, views):

        def show(tool: str, given: dict[str, Any], **more: Any) -> tuple[Page, FrameLocator]:
            answer = server.call(tool, **given).model_dump(by_alias=True, mode="json", exclude_none=True)
            views["now"] = {"find": "ui://runebook/search", "read": "ui://runebook/memory"}[tool]
            result = more.pop("result", answer)
            page.evaluate(
                "([view, given, result, context, able]) => present(view, given, result, context, able ?? undefined)",
                [FRAME, given, result, more.get("context", {}), more.get("able")],
            )
            return page, page.frame_locator("#frame")

        yield show


@contextmanager
def ready_page(browser: Any, server: Caller) -> Iterator[tuple[Page, dict[str, str]]]:
    faults: list[str] = []
    views: dict[str, str] = {}
    context = browser.new_context()
    context.set_default_timeout(10_000)

    def fulfil(route: Route) -> None:
        if route.request.url == HOST:
            route.fulfill(path=Path(__file__).with_name("host.html"), content_type="text/html")
        elif route.request.url == FRAME:
            content = server.resource(views["now"])
            route.fulfill(
                body=content.text,
                content_type="text/html; charset=utf-8",
                headers={"Content-Security-Policy": policy((content.meta or {})["ui"]["csp"])},
            )
        else:
            faults.append(f"request: {route.request.url}")
            route.abort()

    def call(params: str) -> str:
        asked = json.loads(params)
        answer = server.call(asked["name"], **asked["arguments"])
        return answer.model_dump_json(by_alias=True, exclude_none=True)

    context.route("**/*", fulfil)
    page = context.new_page()
    page.on("console", lambda message: faults.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.expose_function("server", call)
    page.goto(HOST)
    yield page, views
    context.close()
    assert faults == []


def policy(csp: dict[str, list[str]]) -> str:
    """What a host makes of the domains that a resource declares."""
    static = " ".join(csp["resourceDomains"])
    connected = " ".join(csp["connectDomains"]) or "'none'"
    return (
        f"default-src 'none'; script-src 'self' 'unsafe-inline' {static}; style-src 'self' 'unsafe-inline' {static}; "
        f"img-src 'self' data: {static}; connect-src {connected}; "
        "frame-src 'none'; object-src 'none'; base-uri 'self'"
    )


def said(page: Page, method: str) -> list[dict[str, Any]]:
    """What the view said to its host."""
    heard: list[dict[str, Any]] = page.evaluate("heard")
    return [message.get("params", {}) for message in heard if message.get("method") == method]


def test_a_search_is_drawn_opened_left_and_repeated(shown: Shown) -> None:
    page, view = shown("find", {"query": "tea 茶", "limit": 5})
    assert view.get_by_test_id("hit").count() == 3
    assert view.get_by_role("heading").all_inner_texts() == ["Memories", "Conversations and logs"]
    bars = view.get_by_role("img").evaluate_all("bars => bars.map(bar => bar.ariaLabel)")
    assert any(label.startswith("words 1.00") for label in bars)
    assert page.evaluate("frame.getBoundingClientRect().height") > 200  # as high as the view said that it is
    view.get_by_role("button", name="Tea · Only green tea 绿茶").click()
    view.get_by_test_id("title").wait_for()
    assert view.get_by_test_id("title").inner_text() == "Tea"
    assert said(page, "tools/call")[-1]["name"] == "read"
    view.get_by_test_id("back").click()
    view.get_by_test_id("query").fill("coffee")
    view.get_by_test_id("query").press("Enter")
    view.get_by_text("1 found").wait_for()
    assert said(page, "tools/call")[-1] == {"name": "find", "arguments": {"query": "coffee", "limit": 5}}
    assert said(page, "ui/initialize")[0]["protocolVersion"] == "2026-01-26"


def test_a_memory_is_read_as_text_and_hands_links_and_talk_to_the_host(shown: Shown) -> None:
    page, view = shown("read", {"uri": "viking://user/default/memories/preferences/Tea.md"})
    article = view.get_by_test_id("memory")
    article.wait_for()
    assert article.locator("strong").inner_text() == "green tea"
    assert article.locator("li").count() == 2
    assert "MEMORY_FIELDS" not in article.inner_text()
    assert "preference" in view.get_by_test_id("facts").inner_text()
    view.get_by_role("button", name="https://tea.example/leaves").click()
    view.get_by_test_id("ask").click()
    page.wait_for_function("heard.some((message) => message.method === 'ui/message')")
    assert said(page, "ui/open-link") == [{"url": "https://tea.example/leaves"}]
    assert "Tea.md" in said(page, "ui/message")[0]["content"][0]["text"]


def test_hostile_text_stays_text(shown: Shown) -> None:
    page, view = shown("read", {"uri": "viking://user/default/memories/preferences/Hostile.md"})
    article = view.get_by_test_id("memory")
    article.wait_for()
    assert "<img src=x onerror=alert(1)><script>alert(2)</script>" in article.inner_text()
    assert article.locator("img, script, a").count() == 0
    assert said(page, "ui/open-link") == []


def test_theme_language_and_styles_are_the_hosts_and_follow_it(shown: Shown) -> None:
    dark = {"theme": "dark", "locale": "zh-CN", "styles": {"variables": {"--color-text-primary": "rgb(1, 2, 3)"}}}
    page, view = shown("find", {"query": "tea 茶"}, context=dark)
    assert view.get_by_text("找到 3 条").count() == 1
    assert view.get_by_role("heading").all_inner_texts() == ["记忆", "对话与日志"]
    style = (
        "body => [getComputedStyle(body).color, getComputedStyle(body).backgroundColor, document.documentElement.lang]"
    )
    assert view.locator("body").evaluate(style) == ["rgb(1, 2, 3)", "rgb(28, 27, 25)", "zh"]
    page.evaluate("tell('ui/notifications/host-context-changed', {theme: 'light', locale: 'en-US'})")
    view.get_by_text("3 found").wait_for()
    assert view.locator("body").evaluate(style) == ["rgb(1, 2, 3)", "rgb(255, 255, 255)", "en"]


def test_a_host_that_passes_no_calls_on_gets_a_view_without_buttons(shown: Shown) -> None:
    _, view = shown("find", {"query": "tea 茶"}, able={})
    assert view.get_by_test_id("hit").count() == 3
    assert view.get_by_role("button").count() == 0
    assert view.get_by_test_id("query").count() == 0


def test_failures_cancellations_and_the_end_are_answered(shown: Shown) -> None:
    failed = {"isError": True, "content": [{"type": "text", "text": "The store is busy. 请稍后再试。"}]}
    page, view = shown("find", {"query": "tea"}, result=failed)
    assert view.get_by_role("alert").inner_text() == "The store is busy. 请稍后再试。"
    page.evaluate("tell('ui/notifications/tool-cancelled', {reason: 'user'})")
    view.get_by_text("This was cancelled.").wait_for()
    assert page.evaluate("ask('ping')")["result"] == {}
    assert page.evaluate("ask('ui/resource-teardown', {reason: 'closed'})")["result"] == {}
    assert page.evaluate("ask('tools/list')")["error"]["code"] == -32601


def test_messages_from_elsewhere_are_not_the_hosts(shown: Shown) -> None:
    page, view = shown("find", {"query": "tea 茶"})
    view.get_by_text("3 found").wait_for()
    forged = {"jsonrpc": "2.0", "method": "ui/notifications/tool-cancelled", "params": {}}
    view.locator("body").evaluate("(_, message) => window.postMessage(message, '*')", forged)
    assert page.evaluate("ask('ping')")["result"] == {}  # what was posted before it has arrived
    assert view.get_by_text("3 found").count() == 1
