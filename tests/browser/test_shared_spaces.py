"""The page of somebody who sees a shared space beside their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_core.core.store.issued_tokens import SharedSpace
from tests.browser.conftest import Site, watched_page
from tests.server.bearers import issue, revoke, send
from tests.server.conftest import HttpServer

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
