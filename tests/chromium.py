"""The system's own Chromium, driven by Playwright; tests that need it are skipped with a reason where it is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


_ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--disable-dev-shm-usage"),
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def started_browser() -> Iterator[Browser]:
    """The system's browser, or why there is none."""
    program = _program()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        said = "the browser tests need Chromium and the Python package playwright"
        if os.environ.get("RUNEBOOK_BROWSER") == "required":
            pytest.fail(said)
        pytest.skip(said)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def _program() -> str | None:
    """The browser that the system has."""
    return next(filter(None, map(shutil.which, _NAMES)), None)
