"""What another process commits appears on the open page: in lists, in a memory, as a badge, in every tab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory
from tests.browser.conftest import commit
from tests.stores import words_only

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Page, Route

    from tests.browser.conftest import Site


pytestmark = pytest.mark.slow
_NOTES = "viking://user/default/memories/notes"


def row(page: Page, title: str) -> Any:
    return page.locator(f'[data-testid=memory-row][data-uri="{_NOTES}/{title}.md"]')


def test_a_list_shows_what_another_process_commits_and_keeps_the_focus(tab: Page, own_site: Site) -> None:
    row(tab, "Tea").locator("a").focus()
    commit(own_site.home, "旅行", "五月去厦门。")
    row(tab, "旅行").wait_for()
    assert "just-changed" in (row(tab, "旅行").get_attribute("class") or "")
    assert "just-changed" not in (row(tab, "Tea").get_attribute("class") or "")
    assert tab.evaluate("document.activeElement.closest('[data-uri]').dataset.uri") == f"{_NOTES}/Tea.md"


def test_a_memory_shows_its_new_text_and_what_was_opened_stays_open(tab: Page, own_site: Site) -> None:
    row(tab, "Tea").locator("a").click()
    tab.get_by_test_id("raw").locator("summary").click()
    commit(own_site.home, "Tea", "And oolong after lunch.")
    tab.get_by_test_id("body").filter(has_text="oolong").wait_for()
    assert tab.get_by_test_id("raw").evaluate("each => each.open")
    assert "oolong" in tab.get_by_test_id("raw").inner_text()


def test_a_version_that_was_opened_is_not_drawn_again_for_what_changes_elsewhere(tab: Page, own_site: Site) -> None:
    row(tab, "Tea").locator("a").click()
    version = tab.get_by_test_id("version").first
    version.locator("summary").first.click()
    version.get_by_test_id("diff").wait_for()
    version.evaluate("each => { each.seen = true; }")
    with tab.expect_response("**/versions/**"):
        commit(own_site.home, "Other", "Something else.")
    tab.wait_for_timeout(500)
    assert version.evaluate("each => each.seen === true && each.open")


def test_a_version_that_was_opened_shows_what_it_changed_at_once_when_the_memory_is_drawn_again(
    tab: Page, own_site: Site
) -> None:
    row(tab, "Tea").locator("a").click()
    version = tab.get_by_test_id("version").last
    version.locator("summary").first.click()
    version.get_by_test_id("diff").wait_for()
    tab.evaluate(
        """() => new MutationObserver(() => {
          const opened = document.querySelector('[data-testid=version][open]');
          if (opened && !opened.querySelector('[data-testid=diff]')) document.body.dataset.empty = 'yes';
        }).observe(document.querySelector('main'), { subtree: true, childList: true, attributes: true })"""
    )
    for number, said in enumerate(("And oolong after lunch.", "And mint at night."), start=2):
        commit(own_site.home, "Tea", said)
        tab.get_by_test_id("body").filter(has_text=said).wait_for()
        version.get_by_test_id("diff").wait_for()
        assert [tab.get_by_test_id("version").nth(at).evaluate("each => each.open") for at in range(number)] == [
            *[False] * (number - 1),
            True,
        ]
    assert tab.evaluate("document.body.dataset.empty") is None


def test_what_is_changed_while_the_view_is_read_again_stays(tab: Page, own_site: Site) -> None:
    row(tab, "Tea").locator("a").click()
    tab.get_by_test_id("pin").wait_for()
    answers: list[tuple[Route, APIResponse]] = []

    def late(route: Route) -> None:
        if route.request.method == "GET" and not answers:
            answers.append((route, route.fetch()))
        else:
            route.continue_()

    tab.route("**/entries/**", late)
    commit(own_site.home, "Other", "Something else.")
    while not answers:
        tab.wait_for_timeout(50)
    tab.get_by_test_id("pin").click()
    tab.get_by_test_id("pinned-mark").wait_for()
    with tab.expect_response(lambda answer: "/entries/" in answer.url and answer.json().get("pinned") is True):
        ((route, response),) = answers
        route.fulfill(response=response)
    tab.get_by_test_id("pin").get_by_text("Unpin").wait_for()


def test_a_summary_that_is_being_written_does_not_overwrite_anothers_whatever_is_drawn_anew(
    tab: Page, own_site: Site
) -> None:
    tab.watch.expected.add(412)  # type: ignore[attr-defined]
    tab.evaluate("() => { location.hash = '#/summary?edit=1' }")
    tab.get_by_test_id("field-summary").fill("What I write.")
    with open_memory(words_only(own_site.home)) as memory:
        memory.commit(CommitRequest("Allergic to nuts.", memory_type="rolling_summary"))
    tab.get_by_test_id("language").click()
    tab.get_by_role("heading", name="概要").first.wait_for()
    assert tab.get_by_test_id("field-summary").input_value() == "What I write."
    tab.get_by_test_id("save").click()
    tab.get_by_test_id("beside").filter(has_text="Allergic to nuts.").wait_for()
    tab.get_by_test_id("save").click()  # now it was seen
    tab.get_by_test_id("body").filter(has_text="What I write.").wait_for()


def test_changes_that_follow_at_once_are_made_one_after_the_other(tab: Page, own_site: Site) -> None:
    row(tab, "Tea").locator("a").click()
    tab.get_by_test_id("pin").wait_for()
    tab.evaluate(
        "() => ['standing-active', 'pin'].forEach((id) => document.querySelector(`[data-testid=${id}]`).click())"
    )
    tab.get_by_test_id("pinned-mark").wait_for()
    text = (own_site.home / "user/default/memories/notes/Tea.md").read_text(encoding="utf-8")
    assert '"pinned": true' in text
    assert '"active": false' in text


def test_what_waits_is_counted_beside_its_section_until_it_is_decided(tab: Page, own_site: Site) -> None:
    badge = tab.get_by_test_id("waiting-badge")
    assert badge.count() == 0
    commit(own_site.home, "Roses", "Alba roses stand half shade.", review="automatic")
    badge.wait_for()
    assert badge.locator("[aria-hidden]").inner_text() == "1"
    tab.get_by_test_id("nav-queue").click()
    tab.get_by_test_id("review-accept").click()
    badge.wait_for(state="detached")


def test_a_text_being_written_is_left_alone(tab: Page, own_site: Site) -> None:
    row(tab, "Tea").locator("a").click()
    tab.get_by_test_id("edit").click()
    tab.get_by_test_id("field-content").fill("Mine.")
    tab.evaluate("() => addEventListener('committed', () => (window.wasTold = true), {once: true})")
    commit(own_site.home, "Other", "Something else.")
    tab.wait_for_function("() => window.wasTold")
    assert tab.get_by_test_id("field-content").input_value() == "Mine."


def test_tabs_of_one_browser_share_one_stream(tab: Page, own_site: Site) -> None:
    other = tab.context.new_page()
    asked: list[str] = []
    other.on("request", lambda request: asked.append(request.url))
    other.goto(own_site.origin)
    row(other, "Tea").wait_for()
    commit(own_site.home, "Second", "For both.")
    row(other, "Second").wait_for()
    assert not [url for url in asked if "/changes" in url]
    row(tab, "Second").wait_for()
