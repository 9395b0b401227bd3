"""Tags and many memories at once: shown, filtered, edited; one commit for all, and one undo for all of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.search.memory_list import EntryFilter
from memory_core.runebook import open_memory
from tests.browser.conftest import commit, serving_page
from tests.browser.test_live import row
from tests.stores import words_only

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.browser.conftest import Site


pytestmark = pytest.mark.slow
_TITLES = ("Tea", "旅行", "Bicycle")


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    for title in _TITLES:
        commit(tmp_path / "home", title, f"About {title}.")
    with serving_page(tmp_path / "home") as site:
        yield site


def entries(site: Site) -> dict[str, Any]:
    """The memories in use, by name."""
    with open_memory(words_only(site.home)) as memory:
        return {entry.name: entry for entry in memory.entries(EntryFilter()).entries}


def choose(page: Page, *titles: str) -> None:
    if page.get_by_test_id("select").get_attribute("aria-pressed") != "true":
        page.get_by_test_id("select").click()
    for title in titles:
        row(page, title).get_by_test_id("pick").check()


def undo(page: Page) -> None:
    page.get_by_test_id("toast-action").last.click()
    page.get_by_test_id("toast").filter(has_text="Brought back").last.wait_for()


def test_several_are_tagged_filtered_by_the_tag_and_brought_back_by_one_undo(tab: Page, own_site: Site) -> None:
    choose(tab, "Tea", "旅行")
    tab.get_by_test_id("bulk-tag").click()
    tab.get_by_test_id("bulk-tags").fill("home, 家")
    tab.get_by_test_id("bulk-tag-dialog-yes").click()
    row(tab, "Tea").get_by_test_id("tag").first.wait_for()
    tags = {name: entry.tags for name, entry in entries(own_site).items()}
    assert tags == {"Tea": ("home", "家"), "旅行": ("home", "家"), "Bicycle": ()}
    row(tab, "Tea").get_by_test_id("tag").filter(has_text="家").click()
    row(tab, "Bicycle").wait_for(state="detached")
    assert tab.get_by_test_id("filter-tag-家").get_attribute("aria-pressed") == "true"
    undo(tab)
    tab.get_by_test_id("empty").wait_for()
    assert {entry.tags for entry in entries(own_site).values()} == {()}


def test_many_are_deleted_or_archived_in_one_commit(tab: Page, own_site: Site) -> None:
    for act in ("archive", "delete"):
        choose(tab)
        tab.get_by_test_id("bulk-all").click()
        tab.get_by_test_id(f"bulk-{act}").click()
        if act == "delete":
            tab.get_by_test_id("bulk-delete-dialog-yes").click()
        tab.get_by_test_id("empty").wait_for()
        assert entries(own_site) == {}
        undo(tab)
        row(tab, "Tea").wait_for()
        assert set(entries(own_site)) == set(_TITLES)


def test_the_keyboard_selects_and_what_is_selected_moves_to_a_project(tab: Page, own_site: Site) -> None:
    row(tab, "Bicycle").locator("a").first.focus()
    tab.keyboard.press("x")
    assert "1 selected" in tab.get_by_test_id("selected").inner_text()
    tab.get_by_test_id("bulk-move").click()
    tab.get_by_test_id("bulk-project").fill("garage")
    tab.get_by_test_id("bulk-move-dialog-yes").click()
    row(tab, "Bicycle").locator(".project", has_text="garage").wait_for()
    projects = {name: entry.project for name, entry in entries(own_site).items()}
    assert projects == {"Tea": None, "旅行": None, "Bicycle": "garage"}


def test_tags_are_edited_on_the_memory_itself(tab: Page, own_site: Site) -> None:
    row(tab, "Tea").locator("a").first.click()
    tab.get_by_test_id("tags-add").fill("drink")
    tab.keyboard.press("Enter")
    tab.get_by_test_id("tags").get_by_test_id("tag").wait_for()
    assert entries(own_site)["Tea"].tags == ("drink",)
    tab.get_by_test_id("tag-remove").click()
    tab.get_by_test_id("tags").get_by_test_id("tag").wait_for(state="detached")
    assert entries(own_site)["Tea"].tags == ()


def test_what_the_examination_finds_is_mended_after_a_look_at_what_will_be_done(tab: Page, own_site: Site) -> None:
    with closing(sqlite3.connect(own_site.home / ".state" / "index.sqlite3")) as index, index:
        index.execute("DELETE FROM documents WHERE uri LIKE '%/Tea.md'")
    tab.get_by_test_id("nav-health").click()
    tab.get_by_test_id("mend").click()
    dialog = tab.get_by_test_id("mend-dialog")
    assert dialog.locator("li").count() >= 1
    tab.get_by_test_id("mend-dialog-yes").click()
    tab.get_by_test_id("mended").wait_for()
    assert "no problems" in tab.get_by_test_id("verdict").inner_text().lower()
