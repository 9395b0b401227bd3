"""People sign in on the page of a server that has an authorization server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Site, watched_page
from tests.server.bearers import issue
from tests.server.conftest import HttpServer

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def inn(tmp_path: Path) -> Iterator[Site]:
    token = issue(tmp_path / "home", "anna")
    with HttpServer(tmp_path / "home", tmp_path / "stderr", "--set", "http.oauth.issuer=own") as server:
        yield Site(server.origin, token, tmp_path / "home")


def test_whoever_signs_in_comes_back_to_where_they_were_and_can_sign_out(browser: Browser, inn: Site) -> None:
    with watched_page(browser, inn) as (page, watch):
        watch.expected |= {401, 403}
        page.goto(f"{inn.origin}/#/settings")
        page.get_by_test_id("sign-in").click()
        page.get_by_label("Your token (rb_…)").fill("rb_wrong")
        page.get_by_role("button", name="Allow").click()
        page.get_by_role("alert").get_by_text("This token does not hold").wait_for()
        page.get_by_label("Your token (rb_…)").fill(inn.key)
        page.get_by_role("button", name="Allow").click()
        page.get_by_role("heading", name="Settings").wait_for()
        assert page.url == f"{inn.origin}/#/settings"
        page.get_by_text("anna", exact=True).first.wait_for()
        key = page.evaluate("sessionStorage.getItem('runebook.key')")
        assert key.startswith("rs_")
        page.get_by_role("button", name="Remove key").click()
        page.get_by_test_id("sign-in").wait_for()
        answer = page.request.get(f"{inn.origin}/api/memory/about", headers={"authorization": f"Bearer {key}"})
        assert answer.status == 401


def test_whoever_refuses_is_not_signed_in(browser: Browser, inn: Site) -> None:
    with watched_page(browser, inn) as (page, watch):
        watch.expected |= {401, 403}
        page.goto(f"{inn.origin}/login")
        page.get_by_role("button", name="Refuse").click()
        page.get_by_text("Signing in failed, or was refused.").wait_for()
        page.get_by_role("link", name="Runebook").click()
        page.get_by_test_id("key-dialog").wait_for()
