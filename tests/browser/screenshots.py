"""The documentation's pictures: ``python -m tests.browser.screenshots DIR`` writes them all as small PNG files.

Each is 1280 × 800 (the phone 390 × 844) in at most 256 colours, of the page on the store of ``story``, searched by
the bundled model.
"""

from __future__ import annotations

import base64
import struct
import sys
import tempfile
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_core.core.caller import authored
from memory_core.core.config import Config, MaintenanceConfig, TiersConfig
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.runebook import open_memory
from tests.browser.conftest import opened_page, serving_page
from tests.browser.story import AGENT, STYLE, USER, talk, tell
from tests.chromium import started_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.conftest import Site


_COLOURS = 256
_SETTLED = "() => !document.querySelector('main .skeleton, main[aria-busy], main [aria-busy=true]')"
_PIXELS = """async data => {
    const picture = await createImageBitmap(await (await fetch(data)).blob());
    const canvas = new OffscreenCanvas(picture.width, picture.height);
    const context = canvas.getContext('2d');
    context.drawImage(picture, 0, 0);
    const bytes = context.getImageData(0, 0, picture.width, picture.height).data;
    let text = '';
    for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
    return [picture.width, picture.height, btoa(text)];
}"""
_TYPE = """() => {
    const field = document.querySelector('#field-content');
    field.value = field.value.replace('120', '100') + '\\n- **docstrings** in Google style';
    field.dispatchEvent(new Event('input'));
}"""
_OPEN_COMMIT = """() => {
    location.hash = document.querySelector('[data-testid=version] a[href^="#/commit/"]').getAttribute('href');
}"""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: what the address shows, what is done there first, and how the browser is set."""

    name: str
    place: str
    act: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


_CHINESE = {"locale": "zh-CN"}
_DARK = {"color_scheme": "dark"}
_PHONE = {"viewport": {"width": 390, "height": 844}}
_PICTURES = (
    Picture("home", "#/"),
    Picture("memory", f"#/memory/{USER.removeprefix('viking://')}/preferences/Hotels.md"),
    Picture("edit", f"#/edit/{STYLE.removeprefix('viking://')}", _TYPE),
    Picture("diff", f"#/memory/{STYLE.removeprefix('viking://')}", _OPEN_COMMIT),
    Picture("search", "#/search?q=which database do payments run on"),
    Picture("heat", "#/heat"),
    Picture("health", "#/health"),
    Picture("phone", f"#/memory/{AGENT.removeprefix('viking://')}/tools/web_search.md", None, _PHONE),
    Picture("dark", "#/history", None, _DARK),
    Picture("zh", "#/search?q=谁负责支付系统", None, _CHINESE),
)


def main(folder: Path) -> None:
    """Write the pictures into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        tell(Path(home))
        _live_on(Path(home))
        with serving_page(Path(home), "--set", "embedding.provider=bundled") as site, started_browser() as browser:
            for picture in _PICTURES:
                target = folder / f"{picture.name}.png"
                target.write_bytes(_taken(browser, site, picture))
                print(f"{target}  {target.stat().st_size // 1000} kB")


def _live_on(home: Path) -> None:
    """Talks that fall into topics, and questions that were asked, so that there is something warm."""
    at = datetime.now(UTC)
    config = Config(home=home, tiers=TiersConfig(short_term_capacity=1), maintenance=MaintenanceConfig(automatic="off"))
    with authored("desktop assistant"), open_memory(config) as memory:
        for name, hours in (("garden", 30.0), ("release", 6.0)):
            memory.commit(CommitRequest(messages=talk(name), session_id=name, now=at - timedelta(hours=hours)))
        asked = {"database": 20.0, "Python code style": 6.0, "喝茶": 3.0, "支付系统": 1.0, "hotel": 0.2}
        for question, days in asked.items():
            for hit in memory.find(FindRequest(question, limit=3, now=at - timedelta(days=days))).hits:
                memory.recalls.note_read(hit.uri)


def _taken(browser: Browser, site: Site, picture: Picture) -> bytes:
    with opened_page(browser, site, picture.place, **picture.settings) as page:
        _settle(page)
        if picture.act is not None:
            page.evaluate(picture.act)
            _settle(page)
        full = page.screenshot()
        page.goto("about:blank")
        width, height, pixels = page.evaluate(_PIXELS, f"data:image/png;base64,{base64.b64encode(full).decode()}")
    rgba = np.frombuffer(base64.b64decode(pixels), dtype=np.uint8).reshape(height, width, 4)
    return _png(rgba[:, :, :3])


def _settle(page: Page) -> None:
    page.wait_for_timeout(600)  # of pictures, not of outcomes: what is drawn late should be on them
    page.wait_for_function(_SETTLED)


def _png(rgb: np.ndarray) -> bytes:
    """A PNG with a palette; every colour that is not in it becomes its nearest."""
    height, width, _ = rgb.shape
    flat = rgb.reshape(-1, 3).astype(np.int32)
    codes = (flat[:, 0] << 16) | (flat[:, 1] << 8) | flat[:, 2]
    found, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    colours = np.stack([found >> 16, (found >> 8) & 255, found & 255], axis=1)
    palette = _palette(colours, counts)
    nearest = np.array([int(((palette - colour) ** 2).sum(axis=1).argmin()) for colour in colours], dtype=np.uint8)
    lines = nearest[inverse].reshape(height, width)
    raw = b"".join(b"\0" + line.tobytes() for line in lines)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", palette.astype(np.uint8).tobytes()), (b"IDAT", zlib.compress(raw, 9)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in (*parts, (b"IEND", b"")))


def _palette(colours: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The most frequent colours, then those that are farthest from what is there: small marks keep theirs."""
    chosen = list(np.argsort(-counts, kind="stable")[: _COLOURS // 2])
    distance = np.min([((colours - colours[index]) ** 2).sum(axis=1) for index in chosen], axis=0)
    while len(chosen) < min(_COLOURS, len(colours)):
        farthest = int((distance * np.sqrt(counts)).argmax())
        chosen.append(farthest)
        distance = np.minimum(distance, ((colours - colours[farthest]) ** 2).sum(axis=1))
    return colours[chosen]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
