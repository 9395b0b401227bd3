"""Import, export, backup and restore on the page: looked at first, done, and taken back."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.search.memory_list import EntryFilter
from memory_core.runebook import open_memory
from tests.browser.conftest import Site, commit, opened_page, watched_page
from tests.server.bearers import issue
from tests.stores import words_only

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


@pytest.fixture
def tab(browser: Browser, own_site: Site) -> Iterator[Page]:
    with opened_page(browser, own_site, "#/transfer") as page:
        page.get_by_test_id("import-file").wait_for()
        yield page


def names(site: Site) -> set[str]:
    with open_memory(words_only(site.home)) as memory:
        return {entry.name for entry in memory.entries(EntryFilter()).entries}


def saved(page: Page, button: str, target: Path) -> Path:
    """The file that a button makes."""
    with page.expect_download() as download:
        page.get_by_test_id(button).click()
    download.value.save_as(target)
    return target


def test_notes_are_shown_before_they_come_and_are_taken_back(tab: Page, own_site: Site, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "notes.zip", "w") as notes:
        notes.writestr("notes/Harbour.md", "# Harbour\n\nThe boat is blue.\n")
        notes.writestr("notes/茶.md", "# 茶\n\n早上喝绿茶。\n")
    assert tab.get_by_test_id("import-look").is_disabled()
    tab.get_by_test_id("import-file").set_input_files(tmp_path / "notes.zip")
    tab.get_by_test_id("import-look").click()
    assert "would be new" in tab.get_by_test_id("import-preview").inner_text()
    assert names(own_site) == {"Tea"}
    tab.get_by_test_id("import-go").click()
    assert "are new" in tab.get_by_test_id("import-done").inner_text()
    assert len(names(own_site)) == 3
    tab.get_by_test_id("import-undo").click()
    tab.get_by_test_id("toast").filter(has_text="Brought back").first.wait_for()
    assert names(own_site) == {"Tea"}


def test_what_is_exported_is_here_already_when_it_is_looked_at(tab: Page, tmp_path: Path) -> None:
    export = saved(tab, "export-go", tmp_path / "export.zip")
    tab.get_by_test_id("import-file").set_input_files(export)
    tab.get_by_test_id("import-look").click()
    assert "are here already" in tab.get_by_test_id("import-preview").inner_text()


def test_a_backup_takes_the_place_of_the_store_once_that_was_asked(tab: Page, own_site: Site, tmp_path: Path) -> None:
    backup = saved(tab, "backup-go", tmp_path / "backup.zip")
    commit(own_site.home, "Later", "A later thought.")
    tab.get_by_test_id("restore-file").set_input_files(backup)
    tab.get_by_test_id("restore-look").click()
    assert "Memories in it: 1; in the store now: 2" in tab.get_by_test_id("restore-preview").inner_text()
    tab.get_by_test_id("restore-go").click()
    tab.get_by_test_id("restore-dialog-no").click()
    assert names(own_site) == {"Tea", "Later"}
    tab.get_by_test_id("restore-go").click()
    tab.get_by_test_id("restore-dialog-yes").click()
    assert "before-restore" in tab.get_by_test_id("restored").inner_text()
    assert names(own_site) == {"Tea"}
    tab.get_by_test_id("nav-home").click()
    tab.get_by_text("Green tea").first.wait_for()
    commit(own_site.home, "Boat", "The boat is blue.")
    tab.get_by_text("The boat is blue").first.wait_for()


def test_what_cannot_be_read_says_what_to_do(browser: Browser, own_site: Site, tmp_path: Path) -> None:
    (tmp_path / "wrong.zip").write_bytes(b"PK, and nothing behind it")
    phone: dict[str, Any] = {"locale": "zh-CN", "viewport": {"width": 360, "height": 740}}
    with opened_page(browser, own_site, "#/transfer", **phone) as page:
        page.get_by_test_id("import-file").set_input_files(tmp_path / "wrong.zip")
        page.get_by_test_id("import-look").focus()
        page.keyboard.press("Enter")
        page.get_by_test_id("failure").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_only_the_owner_is_offered_any_of_it(browser: Browser, own_site: Site) -> None:
    with watched_page(browser, own_site) as (page, _):
        page.goto(f"{own_site.origin}/#key={issue(own_site.home, 'anna')}")
        page.get_by_test_id("nav-transfer").wait_for(state="hidden")
        page.evaluate("location.hash = '#/transfer'")
        page.get_by_text("for the owner of the store").wait_for()


def test_what_is_imported_can_be_given_a_project_and_is_not_extracted_without_a_model(
    tab: Page, own_site: Site, tmp_path: Path
) -> None:
    (tmp_path / "CLAUDE.md").write_text("# Harbour\n\n## Rules\n\nNever touch the roses.\n", encoding="utf-8")
    tab.get_by_test_id("import-file").set_input_files(tmp_path / "CLAUDE.md")
    tab.get_by_test_id("import-options").click()
    assert tab.get_by_test_id("import-extract").is_disabled()
    tab.get_by_text("No language model is set up.").wait_for()
    tab.get_by_test_id("import-project").fill("acme")
    tab.get_by_test_id("import-look").click()
    tab.get_by_test_id("import-go").click()
    tab.get_by_test_id("import-done").wait_for()
    with open_memory(words_only(own_site.home)) as memory:
        assert [entry.name for entry in memory.entries(EntryFilter(project="acme")).entries] == ["Rules"]
