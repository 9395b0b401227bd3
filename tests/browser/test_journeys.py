"""What people do on the page, from end to end: read, change, compare, undo, disagree, add, delete."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.memory.requests import CommitRequest
from memory_core.features.imports.import_run import ImportRequest, import_memories
from memory_core.runebook import open_memory
from tests.browser.conftest import serving_page, watched_page
from tests.browser.story import AGENT, HOSTILE_NAME, USER, tell
from tests.server.bearers import issue
from tests.waiting import soon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Route

    from tests.browser.conftest import Site, Visit


pytestmark = pytest.mark.slow
PATIENCE_MS = 10_000


def place(uri: str, view: str = "memory") -> str:
    return f"#/{view}/{uri.removeprefix('viking://')}"


def go(page: Page, hash_: str) -> None:
    page.evaluate("hash => { location.hash = hash }", hash_)


def sees(page: Page, testid: str, text: str | re.Pattern[str] | None = None) -> Any:
    """What has this ``data-testid``, once it is there, with ``text`` in it."""
    found = page.get_by_test_id(testid).filter(has_text=text) if text is not None else page.get_by_test_id(testid)
    found.first.wait_for(timeout=PATIENCE_MS)
    return found.first


def text_on_disk(site: Site, name: str) -> str:
    return (site.home / "user" / "default" / "memories" / name).read_text(encoding="utf-8")


def keep(site: Site, title: str, content: str) -> str:
    """A note of this test's own, written as another program would."""
    config = Config(home=site.home, embedding=EmbeddingConfig(provider="none"))
    with open_memory(config) as memory:
        (result,) = memory.commit(CommitRequest(content, memory_type="notes", fields={"title": title})).results
    return result.uri


def test_the_watch_catches_an_error_and_a_call_to_another_server(browser: Browser, site: Site) -> None:
    acts = {"console.error('harm')": "harm", "new Image().src = 'https://outside.invalid/p.png'": "outside.invalid"}
    with watched_page(browser, site) as (page, watch):
        page.goto(site.address)
        for act, told in acts.items():
            with page.expect_console_message():
                page.evaluate(act)
            assert told in watch.complaints[0]
            watch.complaints.clear()


@pytest.fixture
def told_page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """The page on a store of the test's own, with nothing but the story."""
    tell(tmp_path / "told", hostile=True)
    with serving_page(tmp_path / "told") as site, watched_page(browser, site) as (page, _):
        page.goto(site.address)
        page.wait_for_selector("main h1")
        yield page


def test_the_list_is_filtered_by_type_words_and_standing_and_the_address_keeps_it(told_page: Page) -> None:
    page = told_page
    sees(page, "type-any", "All22")
    page.get_by_test_id("type-preferences").click()
    sees(page, "count", "4 memories")
    page.get_by_test_id("filter-words").fill("茶")
    sees(page, "count", "2 memories")
    assert page.get_by_test_id("memory-row").first.inner_text().startswith("茶叶存放")
    page.reload()
    sees(page, "count", "2 memories")
    sees(page, "filters").click()
    page.get_by_test_id("filter-time").select_option("1")
    sees(page, "empty", "Nothing fits these filters")
    page.reload()
    page.get_by_test_id("filter-time").wait_for()  # what is chosen is in sight
    page.get_by_test_id("filter-time").select_option("")
    sees(page, "count", "2 memories")
    page.get_by_test_id("reset").click()
    page.get_by_test_id("reset").wait_for(state="hidden")
    sees(page, "type-any", "All22")
    page.get_by_test_id("filter-pinned").click()
    sees(page, "count", "1 memory")
    page.get_by_test_id("filter-words").fill("no such words anywhere")
    sees(page, "empty", "Nothing fits these filters")


def test_the_types_count_what_another_program_writes(page: Page, site: Site) -> None:
    before = int(sees(page, "type-any").locator(".count").inner_text())
    keep(site, "Counted", "One more.\n")
    sees(page, "type-any", f"All{before + 1}")


def test_a_memory_shows_its_text_its_standing_its_past_and_the_lines_it_came_from(page: Page) -> None:
    page.get_by_test_id("memory-row").filter(has_text="Python code style").click()
    sees(page, "title", "Python code style")
    assert page.get_by_test_id("body").locator("li").count() == 3
    versions = sees(page, "versions").get_by_test_id("version")
    assert versions.count() == 3
    versions.first.locator("summary").click()
    assert "pathlib" in sees(page, "diff").inner_text()
    page.get_by_test_id("raw").locator("summary").click()
    assert "MEMORY_FIELDS" in page.get_by_test_id("raw").inner_text()
    go(page, place(f"{USER}/preferences/Hotels.md"))
    sees(page, "title", "Hotels")
    assert "my father walks badly" in sees(page, "sources").inner_text()


def test_an_imported_memory_names_its_file_and_who_edited_it(page: Page, site: Site, tmp_path: Path) -> None:
    people = tmp_path / "people.md"
    people.write_text("# People\n\n## Li Wei\n\nLi Wei runs the warehouse.\n", encoding="utf-8")
    with open_memory(Config(home=site.home, embedding=EmbeddingConfig(provider="none"))) as memory:
        import_memories(memory, ImportRequest(people))
    uri = f"{USER}/notes/Li Wei.md"
    go(page, place(uri))
    assert sees(page, "origin").inner_text() == "Imported from people.md."
    assert page.get_by_text("Edited since").count() == 0
    go(page, place(uri, "edit"))
    sees(page, "field-content").fill("Li Wei runs two warehouses.\n")
    page.get_by_test_id("save").click()
    sees(page, "body", "two warehouses")
    page.get_by_text("Edited since; last by this page").wait_for()
    assert sees(page, "origin").inner_text() == "Imported from people.md."


def test_a_line_in_a_list_keeps_its_numbers_dashes_and_subject(page: Page, site: Site) -> None:
    keep(site, "Database", "We use PostgreSQL 16. It runs at 2 - 3 sites; 4. is planned by `ops__team`.\n")
    keep(site, "Lin Yue", "Lin Yue keeps the stock.\n")
    keep(site, "Shopping", "- rice\n- tea\n\n## Later\n\nA pot.\n")
    shown = {"Database": "We use PostgreSQL 16. It runs at 2 - 3 sites; 4. is planned by ops__team."}
    shown |= {"Lin Yue": "Lin Yue keeps the stock.", "Shopping": "rice · tea · Later · A pot."}
    for title, line in shown.items():
        row = page.get_by_test_id("memory-row").filter(has=page.get_by_role("link", name=title, exact=True))
        assert row.locator(".memory-abstract").inner_text() == line
        assert "Importance" not in row.inner_text()  # it is normal


def test_no_preview_is_asked_for_of_what_is_being_saved(page: Page, site: Site) -> None:
    uri = keep(site, "Oslo", "Ask about the ferry.\n")
    go(page, place(uri, "edit"))
    saves: list[Route] = []
    looks: list[str] = []

    def hold(route: Route) -> None:
        if route.request.method != "PATCH":
            route.continue_()
        elif "dry_run" in (route.request.post_data or ""):
            looks.append(route.request.url)
            route.continue_()
        else:
            saves.append(route)

    page.route("**/api/memory/entries/**", hold)
    sees(page, "field-content").fill("Ask about the boat.\n")
    page.get_by_test_id("save").click()
    page.wait_for_timeout(1_000)  # a preview waits a third of it
    assert looks == []
    (save,) = saves
    save.continue_()
    sees(page, "body", "the boat")


def test_an_edit_is_previewed_saved_shown_as_a_difference_and_undone(page: Page, site: Site) -> None:
    uri = keep(site, "待办 Kyoto", "Ask about the tea house.\n")
    go(page, place(uri))
    sees(page, "title", "待办 Kyoto")
    page.keyboard.press("e")
    assert sees(page, "save").is_disabled()  # nothing is changed yet
    page.get_by_test_id("field-content").fill("Ask about the **garden**.\n\n- 抹茶\n- 团子\n")
    assert sees(page, "dirty").is_visible()
    assert sees(page, "save").is_enabled()
    page.get_by_test_id("preview").locator("strong", has_text="garden").wait_for()
    assert "garden" in sees(page, "changes").get_by_test_id("diff").inner_text()
    assert "tea house" in text_on_disk(site, "notes/待办 Kyoto.md")
    page.keyboard.press("Control+Enter")
    sees(page, "title", "待办 Kyoto")
    sees(page, "body", "garden")
    assert "抹茶" in text_on_disk(site, "notes/待办 Kyoto.md")
    page.get_by_test_id("version").nth(1).wait_for()
    page.get_by_test_id("toast-action").click()
    sees(page, "body", "tea house")
    assert "tea house" in text_on_disk(site, "notes/待办 Kyoto.md")


def test_importance_expiry_and_pin_are_changed_where_they_are_shown(page: Page, site: Site) -> None:
    uri = keep(site, "Standing", "To be judged.\n")
    go(page, place(uri))
    slider = sees(page, "standing-salience")
    slider.focus()
    page.keyboard.press("End")
    sees(page, "toast", "Saved: Standing")
    assert '"salience": 1' in text_on_disk(site, "notes/Standing.md")
    page.get_by_test_id("standing-expires-set").click()
    page.get_by_test_id("standing-expires").fill("2031-05-04")
    page.get_by_text("Until 4 May 2031").wait_for()
    assert page.get_by_test_id("standing-expires").input_value() == "2031-05-04"
    assert '"expires_at": "2031-05-04"' in text_on_disk(site, "notes/Standing.md")
    page.get_by_test_id("standing-expires").fill("")
    page.get_by_text("Until 4 May 2031").wait_for(state="detached")
    assert "expires_at" not in text_on_disk(site, "notes/Standing.md")
    page.get_by_test_id("pin").click()
    sees(page, "pinned-mark")
    assert '"pinned": true' in text_on_disk(site, "notes/Standing.md")


def test_two_tabs_that_edit_one_memory_lose_neither_text(page: Page, site: Site, visit: Visit) -> None:
    uri = keep(site, "Two tabs", "First text.\n")
    other = visit(place(uri, "edit"), expected=(412,))
    sees(other, "field-content")
    go(page, place(uri, "edit"))
    sees(page, "field-content").fill("What the first tab says.\n")
    page.get_by_test_id("save").click()
    sees(page, "body", "first tab")

    other.get_by_test_id("field-content").fill("What the second tab says.\n")
    other.get_by_test_id("save").click()
    conflict = sees(other, "conflict")
    both = conflict.get_by_test_id("diff")
    both.wait_for()
    assert "first" in both.inner_text()
    assert "second" in both.inner_text()

    other.get_by_test_id("conflict-edit").click()
    assert other.get_by_test_id("field-content").input_value() == "What the second tab says.\n"
    assert "first tab" in sees(other, "beside").inner_text()
    other.get_by_test_id("save").click()
    sees(other, "body", "second tab")
    versions = sees(other, "versions").get_by_test_id("version")
    assert versions.count() == 3
    versions.first.locator("summary").click()
    versions.first.get_by_test_id("diff").wait_for()
    assert "first tab" in versions.first.inner_text().replace("\n", " ")


def test_a_conflict_can_end_with_theirs_or_with_mine_on_top(site: Site, visit: Visit) -> None:
    uri = keep(site, "冲突", "原来的内容。\n")
    config = Config(home=site.home, embedding=EmbeddingConfig(provider="none"))
    page = visit("#/", expected=(412,))
    for choice, left in (("take", "别人写的"), ("keep", "我写的")):
        go(page, place(uri, "edit"))
        sees(page, "field-content").fill("我写的\n")
        with open_memory(config) as memory:
            memory.commit(
                CommitRequest(
                    operations={"edit_operations": [{"uri": uri, "patches": {"content": f"别人写的 {choice}\n"}}]}
                )
            )
        page.get_by_test_id("save").click()
        sees(page, f"conflict-{choice}").click()
        sees(page, "body", left)
        assert left in text_on_disk(site, "notes/冲突.md")


def test_a_form_shows_only_what_can_be_changed(page: Page) -> None:
    go(page, place(f"{AGENT}/tools/web_search.md", "edit"))
    sees(page, "field-best_for")
    assert page.get_by_text("Successes").count() == 0


def test_a_memory_made_of_its_fields_says_each_of_them_once(page: Page) -> None:
    go(page, place(f"{AGENT}/tools/web_search.md"))
    assert sees(page, "body").inner_text().split("\n") == [
        *("Searches the web and returns titles with excerpts", ""),
        *("Best for", "Documentation and release notes"),
        *("Common failures", "Vague questions bring news instead of documentation"),
    ]
    rows = sees(page, "fields").locator("tr").all_inner_texts()
    assert rows[0] == "Calls\t100"
    assert "Success rate\t92%" in rows
    assert {"Average time\t1.2 s", "Total time\t2 min", "Total tokens\t150,000"} <= set(rows)


def test_a_text_made_of_fields_that_somebody_edited_by_hand_is_shown_as_it_is(page: Page, site: Site) -> None:
    uri = f"{AGENT}/tools/query.md"
    tool: dict[str, Any] = {
        "tool_name": "query",
        "total_calls": 3,
        "best_for": "Counting rows",
        "recommendation": "Log in first.",
    }
    with open_memory(Config(home=site.home, embedding=EmbeddingConfig(provider="none"))) as memory:
        memory.commit(CommitRequest(memory_type="tools", fields=tool))
        file = site.home / "agent/default/memories/tools/query.md"
        text = file.read_text("utf-8")
        file.write_text(text.replace("Recommendation: Log in first.", "Recommendation: NEVER log in.", 1), "utf-8")
        memory.store.adopt()
        best = {"best_for": "Counting rows, and days"}
        memory.commit(CommitRequest(operations={"edit_operations": [{"uri": uri, "patches": best}]}))
    go(page, place(uri))
    body = sees(page, "body", "Recommendation: NEVER log in.").inner_text()
    assert "Best for: Counting rows" in body
    tables = page.get_by_test_id("fields")
    tables.nth(1).wait_for()
    assert "Counting rows, and days" in tables.first.inner_text()
    assert "Calls\t3" in tables.nth(1).inner_text()
    page.get_by_test_id("edit").click()
    sees(page, "hand-edited", f"runebook edit '{uri}'")
    sees(page, "preview", "Recommendation: NEVER log in.")


def test_leaving_with_unsaved_text_asks_first(page: Page, site: Site) -> None:
    uri = keep(site, "Unsaved", "Old.\n")
    go(page, place(uri, "edit"))
    sees(page, "field-content").fill("New and not saved.\n")
    sees(page, "dirty")
    page.get_by_test_id("nav-home").click()
    sees(page, "leave-dialog-no").click()
    assert page.get_by_test_id("field-content").input_value() == "New and not saved.\n"
    page.get_by_test_id("language").click()
    page.get_by_text("尚未保存").wait_for()
    assert page.get_by_test_id("field-content").input_value() == "New and not saved.\n"
    page.keyboard.press("Escape")
    sees(page, "leave-dialog-yes").click()
    sees(page, "body", "Old.")


def test_while_the_server_is_away_the_page_says_so_in_sight_and_goes_on_when_it_is_back(page: Page, site: Site) -> None:
    page.watch.expected.add("net::ERR_INTERNET_DISCONNECTED")  # type: ignore[attr-defined]
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').some(each => each.name.endsWith('history.js'))"
    )
    go(page, place(keep(site, "Away", "Old.\n"), "edit"))
    sees(page, "field-content").fill("我写的，还没保存。\n")
    page.context.set_offline(True)
    page.get_by_test_id("save").click()
    said = sees(page, "failure", "The server does not answer")
    low = "each => { const { x, bottom } = each.getBoundingClientRect(); return [x + 9, bottom - 9]; }"
    assert said.evaluate(f"each => each.contains(document.elementFromPoint(...({low})(each)))")
    assert page.get_by_test_id("field-content").input_value() == "我写的，还没保存。\n"
    page.get_by_test_id("nav-history").click()
    sees(page, "leave-dialog-yes").click()
    assert "Start it again" in sees(page, "failure", "The server does not answer").inner_text()
    page.context.set_offline(False)
    # Unless the page went on by itself meanwhile.
    page.evaluate("() => document.querySelector('[data-testid=retry]')?.click()")
    sees(page, "commit-link")


def test_a_new_memory_is_written_then_deleted_then_brought_back(page: Page, site: Site) -> None:
    page.keyboard.press("n")
    sees(page, "new-entities").check()
    assert sees(page, "save").is_disabled()  # nothing is written yet
    page.get_by_test_id("field-entity_name").fill("京都")
    page.get_by_test_id("field-content").fill("有一家**安静**的茶馆。")
    page.get_by_test_id("preview").locator("strong").wait_for()
    page.get_by_test_id("new-priority").select_option("high")
    assert page.get_by_test_id("new-private").is_disabled()
    page.get_by_test_id("new-project").fill("garden")
    assert page.get_by_test_id("new-private").is_enabled()
    page.get_by_test_id("new-project").fill("")
    page.get_by_test_id("save").click()
    sees(page, "title", "京都")
    assert "安静" in text_on_disk(site, "entities/京都.md")
    page.get_by_test_id("delete").click()
    sees(page, "delete-dialog-yes").click()
    sees(page, "toast", "Deleted: 京都")
    assert not (site.home / "user/default/memories/entities/京都.md").exists()
    page.get_by_test_id("toast").filter(has_text="Deleted").get_by_test_id("toast-action").click()
    sees(page, "title", "京都")
    assert "安静" in text_on_disk(site, "entities/京都.md")


def test_language_and_theme_change_at_once_and_are_remembered(page: Page) -> None:
    sees(page, "memory-row")
    page.get_by_test_id("language").click()
    page.locator("h1", has_text="记忆").wait_for()
    assert page.locator("html").get_attribute("lang") == "zh-Hans"
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_test_id("theme").click()
    page.get_by_test_id("theme").click()
    dark = page.evaluate(background)
    assert light != dark
    page.reload()
    page.locator("h1", has_text="记忆").wait_for()
    assert page.evaluate(background) == dark


def test_the_browsers_own_language_is_taken(visit: Visit) -> None:
    page = visit("#/settings", locale="zh-CN")
    page.locator("h1", has_text="设置").wait_for()


def test_everything_is_reached_by_keyboard_alone(page: Page, site: Site) -> None:
    keep(site, "Keys only", "Reached without a mouse.\n")
    page.reload()
    sees(page, "memory-row")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "top-search"
    page.get_by_test_id("top-search").blur()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.textContent") == "Keys only"
    page.keyboard.press("Enter")
    sees(page, "title", "Keys only")
    page.keyboard.press("?")
    sees(page, "help")
    page.keyboard.press("Escape")
    page.get_by_test_id("help").wait_for(state="detached")
    tree = sees(page, "tree")
    tree.locator('[role="treeitem"]').first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    tree.locator('[role="treeitem"]', has_text="Lantern").last.wait_for()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    sees(page, "title", "Lantern")
    tree.locator('[role="treeitem"]').first.focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "Daily logs"


def test_a_phone_shows_every_view_without_scrolling_sideways(visit: Visit) -> None:
    page = visit("#/", viewport={"width": 360, "height": 740}, has_touch=True, expected=(404,))
    views = ("#/", "#/new", "#/settings", place(f"{USER}/preferences/Python code style.md"), "#/history", "#/health")
    for hash_ in (*views, place(f"{USER}/preferences/Python code style.md", "edit"), "#/search?q=tea", "#/heat"):
        go(page, hash_)
        page.locator("main:not([aria-busy])").wait_for()
        page.locator("main h1").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, hash_
    assert not page.get_by_test_id("nav-history").is_visible()
    page.get_by_test_id("menu").click()
    page.get_by_test_id("nav-history").click()
    page.wait_for_url("**/#/history")


def test_code_and_tables_wider_than_a_phone_scroll_inside_their_memory(visit: Visit, site: Site) -> None:
    code = "def 很宽的函数(argument): " * 12
    table = f"|{' 列 |' * 30}\n|{'---|' * 30}\n|{' 内容 |' * 30}"
    wide = f"```python\n{code}\n```\n\n{table}\n\n{'宽' * 400}\n"
    uri = keep(site, "Wide 很宽" + "的标题" * 20, wide)
    page = visit("#/", viewport={"width": 360, "height": 740})
    for view, part in (("memory", "body"), ("edit", "preview")):
        go(page, place(uri, view))
        shown = sees(page, part)
        shown.locator("table").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        code_scrolls = partial(shown.locator("pre").evaluate, "each => each.scrollWidth > each.clientWidth")
        assert soon(code_scrolls), view  # the preview is drawn anew once it has come from the server


def test_hostile_text_is_shown_and_does_nothing(page: Page) -> None:
    page.get_by_test_id("memory-row").filter(has_text="onerror=window.harmed=1>").first.click()
    title = sees(page, "title")
    assert title.inner_text() == HOSTILE_NAME
    body = page.get_by_test_id("body")
    assert "<script>" in body.inner_text()
    assert body.locator("script, img, iframe, svg, style, form").count() == 0
    for link in body.locator("a").all():
        assert re.match(r"https?:|mailto:|#/", link.get_attribute("href") or "#/")
    page.get_by_test_id("edit").click()
    sees(page, "preview")
    for hash_ in ("#/search?q=harmed", "#/history"):
        go(page, hash_)
        page.locator("main h1").wait_for()
    page.locator("main:not([aria-busy])").wait_for()
    assert page.evaluate("window.harmed") is None


def test_a_wrong_key_is_asked_for_again_and_the_right_one_opens(page: Page, site: Site) -> None:
    page.watch.expected.add(401)  # type: ignore[attr-defined]
    assert site.key not in page.url
    page.evaluate("sessionStorage.setItem('runebook.key', 'wrong')")
    page.reload()
    sees(page, "key-wrong")
    assert page.get_by_test_id("memory-row").count() == 0
    page.get_by_test_id("key").fill("still wrong")
    page.get_by_test_id("key-send").click()
    sees(page, "key-wrong")
    page.get_by_test_id("key").fill(site.key)
    page.get_by_test_id("key-send").click()
    sees(page, "memory-row")


def test_a_key_that_only_reads_is_told_so_and_offered_no_change(visit: Visit, site: Site) -> None:
    token = issue(site.home, "looker", user_space="default", agent_space="default", read_only=True)
    page = visit("#/")
    page.evaluate("token => sessionStorage.setItem('runebook.key', token)", token)
    page.reload()
    sees(page, "read-only")
    assert not page.get_by_test_id("new").is_visible()
    go(page, place(f"{USER}/preferences/Hotels.md"))
    sees(page, "title", "Hotels")
    for name in ("edit", "pin", "delete", "standing-salience"):
        assert page.get_by_test_id(name).count() == 0


def test_the_summary_is_written_by_hand_and_the_days_log_grows(page: Page, site: Site) -> None:
    page.get_by_test_id("nav-summary").click()
    sees(page, "empty", "There is no summary yet")
    page.get_by_test_id("edit").click()
    sees(page, "field-summary").fill("Mei 正在准备**大阪**之行。")
    page.get_by_test_id("preview").locator("strong", has_text="大阪").wait_for()
    page.keyboard.press("Control+Enter")
    sees(page, "body", "大阪")
    assert "大阪" in (site.home / "user/default/rolling_summary.md").read_text(encoding="utf-8")
    go(page, "#/new")
    sees(page, "new-more").click()
    sees(page, "new-daily_log").check()
    page.get_by_test_id("field-content").fill("Tasted the first 龙井 of the year.")
    page.get_by_test_id("save").click()
    sees(page, "body", "first 龙井")
    (log,) = (site.home / "user" / "default" / "logs").glob("2*.md")
    assert "first 龙井" in log.read_text(encoding="utf-8")


def test_a_link_opened_in_a_new_tab_needs_no_key_again(visit: Visit, site: Site) -> None:
    page = visit("#/", expected=(401,))
    other = page.context.new_page()
    other.goto(f"{site.origin}/{place(f'{USER}/preferences/Hotels.md')}")
    sees(other, "title", "Hotels")
    assert other.get_by_test_id("key-dialog").count() == 0


def test_notices_cover_nothing_that_one_works_on_and_go_by_themselves(page: Page, site: Site) -> None:
    go(page, place(keep(site, "Ports", "| Service | Port |\n|---|--:|\n| web | 8080 |\n")))
    sees(page, "title", "Ports")
    assert page.get_by_test_id("body").locator("td.align-right").inner_text() == "8080"
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 740})
        page.get_by_test_id("pin").click()
        toast = sees(page, "toast")
        box, main = toast.bounding_box(), page.locator("main").bounding_box()
        assert box is not None
        assert main is not None
        apart = box["x"] + box["width"] <= main["x"] or box["y"] + box["height"] <= main["y"]
        assert apart, (width, box, main)
        toast.wait_for(state="detached", timeout=PATIENCE_MS)


def test_a_strangers_link_gives_the_page_no_key_unasked(page: Page, site: Site) -> None:
    """Nor does it stay in the address."""
    foreign = f"{site.origin}/?of=a-stranger#key=rb_foreign"
    for answer in ("no", "Escape", "yes"):
        page.goto(foreign)
        page.get_by_test_id("key-link").get_by_text("somebody else's").wait_for()
        assert "rb_foreign" not in page.url
        if answer == "yes":
            page.watch.expected.add(401)  # type: ignore[attr-defined]
            page.get_by_test_id("key-link-yes").click()
            page.get_by_test_id("key-wrong").wait_for()
            assert page.evaluate("sessionStorage.getItem('runebook.key')") == "rb_foreign"
        else:
            if answer == "no":
                page.get_by_test_id("key-link-no").click()
            else:
                page.keyboard.press("Escape")
            page.wait_for_selector("main h1")
            assert page.evaluate("sessionStorage.getItem('runebook.key')") == site.key


def test_a_link_brings_a_key_unasked_only_where_this_machine_serves_the_page(browser: Browser, site: Site) -> None:
    """Elsewhere a page without a key asks, too; a tab that began to sign in does not."""
    host = "memory.example"
    for began, given, asks in ((False, "rb_new", True), (True, "rb_new", True), (True, "rs_new", False)):
        with watched_page(browser, site) as (page, watch):
            watch.origin = f"https://{host}"
            watch.expected.add(401)

            def answer(route: Route) -> None:
                path = route.request.url.removeprefix(f"https://{host}")
                if path.startswith("/api/"):
                    route.fulfill(status=401, json={"error": "not this one"})
                else:
                    route.fulfill(response=page.request.get(f"{site.origin}{path}"))

            page.route(f"https://{host}/**", answer)
            page.goto(f"https://{host}/ui/img/mark.svg")
            if began:
                page.evaluate("sessionStorage.setItem('runebook.place', '#/settings')")
            page.goto(f"https://{host}/#key={given}")
            if asks:
                page.get_by_test_id("key-link").wait_for()
                assert page.evaluate("sessionStorage.getItem('runebook.key')") is None
            else:
                page.get_by_test_id("key-wrong").wait_for()
            page.wait_for_load_state("networkidle")  # some modules are still being asked for
            page.unroute_all(behavior="ignoreErrors")
