"""Markdown of a memory as HTML: what a person wrote is shown, what an attacker wrote does nothing."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.http.page_files import RENDERED_CHARS, plain, render

_TAGS = "p h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a br hr table thead tbody tr th td span"
TAGS = frozenset(_TAGS.split())
ATTRIBUTES = {
    "a": {"href", "title", "rel", "target"},
    "code": {"class"},
    "span": {"class"},
    "ol": {"start"},
    "th": {"class"},
    "td": {"class"},
}


class Strict(HTMLParser):
    """Refuses every tag, attribute and address that a rendered memory may not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES.get(tag, set()), (tag, name)
            if name == "href":
                assert (value or "").startswith(("#/memory/", "http://", "https://", "mailto:")), value
                self.links.append(value or "")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def links(text: str) -> list[str]:
    page = Strict()
    page.feed(render(text))
    page.close()
    return page.links


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a <b onclick=x>b</b> <!-- --> <![CDATA[ ]]> <?php ?>",
    "<svg/onload=alert(1)>\n\n<iframe src=javascript:1></iframe>\n<style>*{}</style>",
    "[x](javascript:alert(1)) [x](JaVaScRiPt:1) [x](&#106;avascript:1) [x](java&#10;script:1) [x](\x01javascript:1)",
    "[x](data:text/html;base64,PHN2Zz4=) ![x](data:image/svg+xml,<svg>) [x](vbscript:1) [x](file:///etc/passwd)",
    "[x](//evil.example) [x](/api/memory/about) [x](#/settings) [x](?q) [x](blob:x)",
    "[ref]\n\n[ref]: javascript:alert(1) 'title'",
    "<javascript:alert(1)> <data:text/html,x>",
    '[x](https://a.b/"onmouseover="alert(1)) [x](https://a.b "t\\" onclick=\\"1")',
    '```"><script>alert(1)</script>\ncode\n```',
    "`<script>` ~~<script>~~ **<script>**",
    "| <script> | b |\n|:--|--:|\n| [x](javascript:1) | ![x](javascript:1) |",
    "![<script>](https://evil.example/pixel.png '<script>')",
    "# <script>\n> <script>\n1. <script>",
    '[a](viking://user/default/memories/notes/x"onclick=1.md) [b](viking://../../etc) [c](viking://session/a/b#<script>)',
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_text_becomes_harmless_html(number: int) -> None:
    assert all("javascript" not in link for link in links(HOSTILE[number]))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([*HOSTILE, "\n", "> ", "- ", "`", "](", "<", "&lt;", "茶", "|", "\\", "javascript:"]),
        max_size=8,
    )
)
def test_hostile_pieces_together_are_harmless_too(pieces: list[str]) -> None:
    links("".join(pieces))


def test_links_lead_to_memories_and_to_the_web() -> None:
    text = "[茶](<viking://user/default/memories/notes/绿 茶.md>) <viking://user/default/memories/notes/a.md> <https://a.b/c>"
    assert links(f"{text} <mailto:a@b.c>") == [
        "#/memory/user/default/memories/notes/%E7%BB%BF%20%E8%8C%B6.md",
        "#/memory/user/default/memories/notes/a.md",
        "https://a.b/c",
        "mailto:a@b.c",
    ]
    assert links("<viking://user/default/memories/notes/C%23.md> <viking://user/default/memories/notes/a.md#12>") == [
        "#/memory/user/default/memories/notes/C%23.md",
        "#/memory/user/default/memories/notes/a.md",
    ]
    assert 'rel="noopener noreferrer nofollow"' in render("<https://a.b>")


def test_picture_is_named_and_never_loaded() -> None:
    html = render("![A boat 船](https://evil.example/pixel.png?who)")
    assert "<img" not in html
    assert html == '<p><span class="picture">A boat 船 <code>https://evil.example/pixel.png?who</code></span></p>\n'


def test_tables_and_strikethrough_are_shown() -> None:
    assert '<td class="align-right"><s>旧</s></td>' in render("| a |\n|--:|\n| ~~旧~~ |")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 19_000,
        "![" * 9_500,
        "*a **b " * 6_000,
        "`a``b" * 6_000,
        ">" * 19_000,
        "<a " * 19_000,
        "- " * 50_000,
        "|a" * 4_500 + "\n" + "|-" * 4_500,
        "".join("  " * depth + "- a\n" for depth in range(300)),
        "x" * 5_000_000,
        "[a](<b" * 6_000,
        "~~a " * 9_000,
        "&#" * 40_000,
    ],
    ids=range(14),
)
def test_text_made_to_take_long_does_not(text: str) -> None:
    started = time.process_time()
    links(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("used", ["[a] ", "![a][a] ", "- [a]\n", "| [a] |\n"])
@pytest.mark.parametrize("defined", ["https://x 'TITLE'", "https://x/TITLE"])
def test_a_definition_that_is_used_often_makes_no_text_of_gigabytes(used: str, defined: str) -> None:
    text = f"[a]: {defined.replace('TITLE', 'z' * 30_000)}\n\n"
    head = "| b |\n|---|\n" if used.startswith("|") else ""
    assert "<pre>" not in render(f"{text}{head}{used}")
    assert len(render(f"{text}{head}{used * 900}")) < 60_000


def test_tables_whose_rows_leave_out_most_cells_stay_small() -> None:
    table = f"{'|a' * 100}\n{'|-' * 100}\n" + "x\n" * 60 + "\n"
    assert render(table).count("<td>") == 6_000
    assert render(table * 3) == plain(table * 3)


def test_text_beyond_the_limit_is_shown_as_it_is() -> None:
    assert render("<b>" + "x" * RENDERED_CHARS).startswith("<pre>&lt;b&gt;xxx")
