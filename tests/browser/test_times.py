"""How long ago something was, as the page says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

_NOW = "2026-11-25T02:00:00"
_SAID = {
    "2026-11-25T01:59:40": ("just now", "刚刚"),
    "2026-11-24T23:00:00": ("3 hours ago", "3 小时前"),
    "2026-11-24T09:00:00": ("yesterday", "昨天"),
    "2026-11-23T23:00:00": ("2 days ago", "2 天前"),
    "2026-11-14T09:00:00": ("11 days ago", "11 天前"),
    "2026-11-12T01:00:00": ("13 days ago", "13 天前"),
    "2026-11-11T23:00:00": ("2 weeks ago", "2 周前"),
    "2026-10-20T09:00:00": ("1 month ago", "1 个月前"),
    "2025-11-01T09:00:00": ("1 year ago", "1 年前"),
    "2026-11-26T20:00:00": ("tomorrow", "明天"),
    "2026-11-27T09:00:00": ("in 2 days", "2 天后"),
}
_ASKED = """async ([all, now, language]) => {
    const { ago, setLanguage } = await import('/ui/js/i18n.js');
    await setLanguage(language);
    return all.map(each => ago(each, new Date(now).getTime()));
}"""


def test_days_are_counted_by_the_calendar_and_written_in_digits(page: Page) -> None:
    for at, language in enumerate(("en", "zh")):
        said = page.evaluate(_ASKED, [list(_SAID), _NOW, language])
        assert dict(zip(_SAID, said, strict=True)) == {moment: texts[at] for moment, texts in _SAID.items()}
