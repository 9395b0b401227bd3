"""What the owner sets on the page, and what others see of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.store.issued_tokens import SharedSpace
from server.commands.access_tokens import open_tokens
from tests.browser.conftest import Site, opened_page, watched_page
from tests.stores import words_only

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow


@pytest.fixture
def tab(browser: Browser, own_site: Site) -> Iterator[Page]:
    with opened_page(browser, own_site, "#/settings", expected=(400,)) as page:
        page.get_by_test_id("setting-filter").wait_for()
        yield page


def setting(page: Page, name: str) -> Locator:
    page.get_by_test_id("setting-filter").fill(name)
    return page.locator(f'[data-testid="setting"][data-name="{name}"]')


def toast(page: Page, words: str) -> None:
    page.get_by_test_id("toast").filter(has_text=words).first.wait_for()


def test_a_setting_is_found_changed_refused_and_taken_back(tab: Page, own_site: Site) -> None:
    rank = setting(tab, "search.rank")
    rank.get_by_text("default", exact=True).wait_for()
    rank.get_by_test_id("setting-value").select_option("decay")
    toast(tab, "in force")
    rank.get_by_text("from the settings file").wait_for()
    file = own_site.home / "config.json"
    assert json.loads(file.read_text(encoding="utf-8")) == {"search": {"rank": "decay"}}
    limit = setting(tab, "search.hot_limit")
    limit.get_by_test_id("setting-value").fill("1000")
    tab.keyboard.press("Enter")
    limit.get_by_text("from 1 up to 100, not 1000").wait_for()
    setting(tab, "search.rank").get_by_test_id("setting-reset").click()
    rank.get_by_text("default", exact=True).wait_for()
    assert json.loads(file.read_text(encoding="utf-8")) == {}
    setting(tab, "tiers.short_term_capacity").wait_for()
    assert setting(tab, "embedding.provider").get_by_test_id("setting-value").is_disabled()
    setting(tab, "index.exact_below").get_by_test_id("setting-value").fill("1000")
    tab.keyboard.press("Enter")
    toast(tab, "next start")


def test_private_mode_is_on_until_it_is_off(tab: Page) -> None:
    tab.get_by_test_id("private-switch").click()
    tab.get_by_test_id("new").wait_for(state="hidden")
    tab.reload()
    assert tab.get_by_test_id("private-switch").is_checked()
    tab.get_by_test_id("private-switch").click()
    tab.get_by_test_id("new").wait_for()


def test_a_token_is_issued_copied_used_by_another_person_and_revoked(
    tab: Page, own_site: Site, browser: Browser
) -> None:
    tab.get_by_test_id("token-issue").click()
    tab.get_by_test_id("token-label").fill("tablet")
    tab.get_by_test_id("token-rights").select_option("reads")
    tab.get_by_test_id("token-expiry").select_option("30")
    tab.get_by_test_id("token-dialog-yes").click()
    text = tab.get_by_test_id("token-text").input_value()
    tab.get_by_test_id("issued-dialog-close").click()
    row = tab.get_by_test_id("token").filter(has_text="tablet")
    assert "only reads" in row.inner_text()
    with open_tokens(words_only(own_site.home)) as table:
        assert (found := table.verify(text)) is not None
        assert found.read_only
    with watched_page(browser, own_site) as (page, _):
        page.goto(f"{own_site.origin}/#key={text}")
        page.get_by_test_id("nav-settings").click()
        page.get_by_role("heading", name="Server", exact=True).wait_for()
        assert page.get_by_test_id("tokens").count() == 0
        assert page.get_by_test_id("setting-filter").count() == 0
    row.get_by_test_id("token-revoke").click()
    tab.get_by_test_id("revoke-dialog-yes").click()
    row.wait_for(state="detached")
    with open_tokens(words_only(own_site.home)) as table:
        assert table.verify(text) is None


def test_it_all_fits_a_phone_in_chinese_and_is_reached_by_the_keyboard(browser: Browser, own_site: Site) -> None:
    phone: dict[str, Any] = {"locale": "zh-CN", "viewport": {"width": 360, "height": 740}}
    with opened_page(browser, own_site, "#/settings", **phone) as page:
        sections = page.locator(".setting-section > summary")
        sections.first.wait_for()
        assert not [said for said in sections.all_inner_texts() if said.split()[0].isascii() and "HTTP" not in said]
        page.get_by_test_id("setting-filter").fill("search")
        page.get_by_test_id("setting").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_test_id("token-issue").focus()
        page.keyboard.press("Enter")
        page.get_by_test_id("token-label").wait_for()
        page.keyboard.press("Escape")
        page.get_by_test_id("token-dialog").wait_for(state="detached")
        assert page.evaluate("document.activeElement.dataset.testid") == "token-issue"


def test_a_token_opens_shared_spaces_with_rights_of_their_own(tab: Page, own_site: Site) -> None:
    tab.get_by_test_id("token-issue").click()
    tab.get_by_test_id("token-label").fill("anna")
    tab.get_by_test_id("token-shared-add").click()
    tab.get_by_test_id("token-shared").fill("no/space")
    tab.get_by_test_id("token-dialog-yes").click()
    tab.get_by_test_id("token-dialog").get_by_text("cannot be a shared space").wait_for()
    assert tab.get_by_test_id("token-label").input_value() == "anna"
    tab.get_by_test_id("token-shared").fill("team")
    tab.get_by_test_id("token-shared-add").click()
    tab.get_by_test_id("token-shared").nth(1).fill("handbook")
    tab.get_by_test_id("token-shared-rights").nth(1).select_option("reads")
    tab.get_by_test_id("token-dialog-yes").click()
    text = tab.get_by_test_id("token-text").input_value()
    tab.get_by_test_id("issued-dialog-close").click()
    assert "shares team, handbook (only reads)" in tab.get_by_test_id("token").filter(has_text="anna").inner_text()
    with open_tokens(words_only(own_site.home)) as table:
        assert (found := table.verify(text)) is not None
        assert found.shared == (SharedSpace("team"), SharedSpace("handbook", read_only=True))


def test_settings_are_described_and_found_in_chinese(browser: Browser, own_site: Site) -> None:
    with opened_page(browser, own_site, "#/settings", locale="zh-CN") as page:
        page.get_by_test_id("setting-filter").fill("温度")
        row = page.locator('[data-testid="setting"][data-name="chat.temperature"]')
        row.get_by_text("回答的温度（随机程度）。").wait_for()
        page.get_by_test_id("language").click()
        page.get_by_test_id("setting-filter").fill("temperature")
        row.get_by_text("Temperature of the answers.").wait_for()
