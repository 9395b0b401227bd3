"""The page of somebody who sees a shared space beside their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_core.core.memory.requests import CommitRequest
from memory_core.core.store.issued_tokens import SharedSpace
from memory_core.runebook import open_memory
from tests.browser.conftest import Site, watched_page
from tests.server.bearers import issue, revoke, send
from tests.server.conftest import HttpServer
from tests.stores import words_only

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Site]:
    """Its key is that of Bob, who only reads what Anna wrote in the team."""
    anna = issue(tmp_path / "home", "anna", shared=[SharedSpace("team")])
    bob = issue(tmp_path / "home", "bob", shared=[SharedSpace("team", read_only=True)])
    with HttpServer(tmp_path / "home", tmp_path / "stderr") as server:
        note = {"content": "The swordfish sleeps.", "memory_type": "notes", "fields": {"title": "fish"}}
        assert send(server, "POST", "/api/memory/entries?space=team", note, anna).status == 201
        yield Site(server.origin, bob, tmp_path / "home")


@pytest.fixture
def annas(team: Site) -> Site:
    """The same with a key of Anna's, who writes in the team."""
    key = issue(team.home, "anna 2", user_space="anna", agent_space="anna", shared=[SharedSpace("team")])
    return Site(team.origin, key, team.home)


def test_a_shared_space_is_chosen_and_left_again(browser: Browser, team: Site) -> None:
    with watched_page(browser, team) as (page, watch):
        page.goto(team.address)
        page.get_by_test_id("new").wait_for()
        page.get_by_label("Space").select_option("team (shared, read only)")
        page.get_by_test_id("read-only").wait_for()
        assert page.get_by_test_id("new").is_hidden()
        page.evaluate("location.hash = '#/memory/user/team/memories/notes/fish.md'")
        page.get_by_text("The swordfish sleeps.").first.wait_for()
        page.get_by_label("Space").select_option("Your own")
        page.get_by_test_id("read-only").wait_for(state="detached")
        page.evaluate("location.hash = '#/search?q=swordfish'")  # a search in the own space finds in all
        page.locator("main").get_by_text("The swordfish sleeps.").first.wait_for()
        page.get_by_label("Space").select_option("team (shared, read only)")
        page.get_by_test_id("read-only").wait_for()
        watch.expected |= {401, 404}
        revoke(team.home, "bob")
        other = issue(team.home, "bob")  # no longer of the team
        page.evaluate("key => sessionStorage.setItem('runebook.key', key)", other)
        page.reload()
        page.wait_for_function("() => sessionStorage.getItem('runebook.space') === null")
        page.get_by_role("heading", level=1).wait_for()


def test_what_one_user_wrote_is_not_sent_with_the_key_of_another(browser: Browser, annas: Site) -> None:
    with watched_page(browser, annas) as (page, watch):
        page.goto(annas.address)
        page.get_by_test_id("new").click()
        page.get_by_test_id("field-content").fill("My salary is 4711.")
        watch.expected.add(401)
        revoke(annas.home, "anna 2")
        page.get_by_test_id("save").click()
        page.get_by_test_id("key").fill("wrong")
        page.get_by_test_id("key-send").click()
        page.get_by_test_id("key-wrong").wait_for()
        page.get_by_test_id("key").fill(issue(annas.home, "carl"))
        page.get_by_test_id("key-send").click()
        page.get_by_test_id("toast").get_by_text("opens the memories of carl").wait_for()
        assert page.url == f"{annas.origin}/#/"
        page.get_by_test_id("new").click()
        assert page.get_by_test_id("field-content").input_value() == ""
    assert not [path for path in annas.home.rglob("*.md") if "4711" in path.read_text("utf-8")]


@pytest.mark.parametrize("stays", [True, False])
def test_a_new_key_of_the_same_user_keeps_the_space_where_it_is_open_to_them(
    browser: Browser, annas: Site, stays: bool
) -> None:
    with watched_page(browser, annas) as (page, watch):
        page.goto(annas.address)
        page.get_by_label("Space").select_option("team (shared)")
        page.get_by_test_id("memory-row").filter(has_text="swordfish").wait_for()
        page.get_by_test_id("new").click()
        page.get_by_test_id("field-content").fill("The harbour opens at nine.")
        watch.expected |= {401}
        revoke(annas.home, "anna 2")
        page.get_by_test_id("save").click()
        shared = [SharedSpace("team" if stays else "other")]
        page.get_by_test_id("key").fill(
            issue(annas.home, "anna 3", user_space="anna", agent_space="anna", shared=shared)
        )
        page.get_by_test_id("key-send").click()
        if stays:
            page.get_by_test_id("body").filter(has_text="at nine").wait_for()
        else:
            page.get_by_test_id("toast").get_by_text("opens the memories of anna").wait_for()
        page.get_by_label("Space").wait_for()
        assert page.get_by_label("Space").input_value() == ("team" if stays else "")
        assert page.evaluate("sessionStorage.getItem('runebook.space')") == ("team" if stays else None)
    files = [path for path in annas.home.rglob("*.md") if "at nine" in path.read_text("utf-8") and path.name[0] != "."]
    assert [path.relative_to(annas.home).parts[1] for path in files] == (["team"] if stays else [])


def test_another_key_in_the_settings_is_used_once_it_opens(browser: Browser, annas: Site, team: Site) -> None:
    with watched_page(browser, annas) as (page, watch):
        page.goto(annas.address)
        page.get_by_test_id("nav-settings").click()
        watch.expected.add(401)
        page.get_by_role("button", name="Use another key").click()
        page.get_by_test_id("key").fill("wrong")
        page.get_by_test_id("key-send").click()
        page.get_by_test_id("key-wrong").wait_for()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_text("anna", exact=True).first.wait_for()
        assert page.evaluate("sessionStorage.getItem('runebook.key')") == annas.key
        page.get_by_role("button", name="Use another key").click()
        page.get_by_test_id("key").fill(team.key)
        page.get_by_test_id("key-send").click()
        page.get_by_test_id("toast").get_by_text("opens the memories of bob").wait_for()
        assert page.evaluate("sessionStorage.getItem('runebook.key')") == team.key


def test_what_is_typed_stays_in_its_space_where_a_change_of_space_is_taken_back(browser: Browser, annas: Site) -> None:
    with watched_page(browser, annas) as (page, _):
        page.goto(annas.address)
        page.get_by_test_id("new").click()
        page.get_by_test_id("field-content").fill("What nobody of the team may read.")
        page.get_by_label("Space").select_option("team (shared)")
        page.get_by_test_id("leave-dialog-no").click()
        assert page.get_by_label("Space").input_value() == ""
        page.get_by_test_id("save").click()
        page.get_by_test_id("body").filter(has_text="What nobody of the team").wait_for()
    files = [path for path in annas.home.rglob("*.md") if "nobody of the team" in path.read_text("utf-8")]
    assert {path.relative_to(annas.home).parts[1] for path in files} == {"anna"}


def test_tabs_of_two_spaces_are_each_told_of_their_own(browser: Browser, annas: Site) -> None:
    with watched_page(browser, annas) as (page, _):
        page.goto(annas.address)
        page.get_by_test_id("new").wait_for()
        other = page.context.new_page()
        other.goto(annas.address)
        other.get_by_label("Space").select_option("team (shared)")
        other.get_by_test_id("memory-row").filter(has_text="swordfish").wait_for()
        with open_memory(words_only(annas.home)) as memory:
            memory.view("team", "team").commit(CommitRequest("The herring wakes.", memory_type="notes"))
        other.get_by_test_id("memory-row").filter(has_text="herring").wait_for()
