"""What axe-core finds in every view, light and dark, wide and on a phone: nothing serious, nothing critical.

The audit is the npm package ``axe-core`` in ``.venv/axe``, which ``.ci/run`` installs; without it the test is skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import opened_page
from tests.browser.test_views import _go, site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.conftest import Site


__all__ = ("site",)
pytestmark = pytest.mark.slow
_AXE = Path(__file__).parents[2] / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
_NOTE = "memory/user/default/memories/preferences/Hotels.md"
_PLACES = (
    *("", "search?q=office", "summary", "history", "sessions", "session/garden", "heat", "queue", "archive", "health"),
    *("graph", "calendar", "settings", "transfer", "new", _NOTE, _NOTE.replace("memory/", "edit/", 1)),
)
_AUDIT = """async () => {
    const levels = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const found = await axe.run(document, { resultTypes: ['violations'], runOnly: levels });
    const told = nodes => nodes.map(node => `${node.target.join(' ')} ${node.failureSummary}`).join('; ');
    return found.violations.filter(each => ['serious', 'critical'].includes(each.impact))
        .map(each => `${each.id}: ${told(each.nodes)}`);
}"""
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"color_scheme": "light"},
    {"color_scheme": "dark", "locale": "zh-CN", "viewport": {"width": 360, "height": 740}},
)


@pytest.mark.parametrize("settings", _SETTINGS, ids=("light", "dark-phone-zh"))
def test_no_view_has_serious_barriers(browser: Browser, site: Site, settings: dict[str, Any]) -> None:
    if not _AXE.is_file():
        pytest.skip("axe-core is not installed: npm install --prefix .venv/axe axe-core")
    with opened_page(browser, site, bypass_csp=True, **settings) as page:
        page.add_script_tag(path=_AXE)
        found = {}
        for place in _PLACES:
            _go(page, place)
            if said := page.evaluate(_AUDIT):
                found[place] = said
        assert found == {}
