"""The views that explain: why a hit was found, what a commit changed, what is warm, what waits, how the store is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.caller import authored
from memory_core.core.config import MaintenanceConfig, TiersConfig
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.search.fusion import Candidate, Question, fuse
from memory_core.core.search.ranking import Profile, decay, rank_score
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, ArchiveRequest
from memory_core.runebook import Runebook, open_memory
from tests.browser.conftest import Site, opened_page, serving_page
from tests.browser.story import GREEN_TEA, STYLE, USER, talk, tell
from tests.stores import words_only

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request


pytestmark = pytest.mark.slow

_LOCALES = Path(__file__).parents[2] / "server" / "page" / "locales"
_PLACES = (
    *("search?q=tea", "history", "heat", "sessions", "session/garden?line=2"),
    *("queue", "archive", "health", "graph", "calendar"),
)
_FERRY = f"{USER}/notes/Ferry to Gulangyu.md"
_RANKS: tuple[Profile, ...] = ("relevance", "balanced", "decay", "weighted")
_OLD_OFFICE, _NEW_OFFICE = f"{USER}/facts/Office floor.md", f"{USER}/facts/Office moved.md"
#: Of each drawn part of a bar: its share of the whole width.
_WIDTHS = """bar => [...bar.querySelectorAll('rect')].filter(each => each.querySelector('title'))
    .map(each => parseFloat(each.getAttribute('width')))"""
_EXPLAINED = """async cases => {
    const { explainScore } = await import('/ui/js/parts/score.js');
    return cases.map(([hit, how]) => explainScore(hit, how))
        .map(({ parts, match, moved }) => [parts.reduce((sum, part) => sum + part.value, 0), match, moved]);
}"""
_SETTLED = "() => !document.querySelector('main .skeleton, main[aria-busy], main [aria-busy=true]')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The store of ``story``, with what these views tell of: a contradiction, topics, proposals, an archive."""
    home = tmp_path_factory.mktemp("views")
    tell(home)
    settings = {"maintenance": MaintenanceConfig(automatic="off"), "tiers": TiersConfig(short_term_capacity=1)}
    with open_memory(words_only(home, **settings)) as memory:
        _go_on(memory, datetime.now(UTC))
    with open_memory(words_only(home, review="automatic", **settings)) as memory:
        _propose(memory)
    (home / "user" / "default" / "memories" / "notes" / "Latin.md").write_bytes("Café".encode("latin-1"))
    with serving_page(home) as site:
        yield site


@pytest.fixture(scope="module")
def tab(browser: Browser, site: Site) -> Iterator[Page]:
    """One page for all tests: each goes where it wants to be."""
    with opened_page(browser, site) as page:
        yield page


def _go_on(memory: Runebook, now: datetime) -> None:
    for fields, text in (
        ({"topic": "Office floor"}, "The office is on the third floor."),
        ({"topic": "Office moved"}, "The office is on the seventh floor since June."),
    ):
        memory.commit(CommitRequest(text, memory_type="facts", fields=fields, now=now - timedelta(days=30)))
    link = {"uri": _OLD_OFFICE, "relation": "contradicts", "strength": 0.6}
    edit = {"edit_operations": [{"uri": _NEW_OFFICE, "links": [link]}]}
    memory.commit(CommitRequest(operations=edit, now=now - timedelta(days=1)))
    for title, text in (("Ferry to Gulangyu", "The ferry needs a passport."), ("旧测试环境", "旧的测试环境已经关闭。")):
        memory.commit(CommitRequest(text, memory_type="notes", fields={"title": title}, now=now - timedelta(days=8)))
    with authored("command line"):
        memory.run(ARCHIVE, ArchiveRequest([_FERRY, f"{USER}/notes/旧测试环境.md"], now=now - timedelta(days=7)))
    messages = talk("garden", "Thanks.", "With pleasure.")
    memory.commit(CommitRequest(messages=messages, session_id="garden", now=now - timedelta(hours=5)))
    for question in ("green tea 喝绿茶", "还喝绿茶吗"):  # what agents find is used; what the page shows is not
        assert memory.find(FindRequest(question)).hits


def _propose(memory: Runebook) -> None:
    write = {"memory_type": "notes", "fields": {"title": "Roses", "content": "Alba roses stand half shade."}}
    other = {"memory_type": "notes", "fields": {"title": "发票", "content": "每月五号之前交发票。"}}
    operations = {"reasoning": "Asked for twice.", "write_operations": [{"memory_data": write}, {"memory_data": other}]}
    memory.commit(CommitRequest(operations=operations, session_id="garden"))


def _go(page: Page, place: str) -> None:
    """Go there, and wait until everything is drawn."""
    page.evaluate("place => import('/ui/js/router.js').then(router => router.go(`#/${place}`))", place)
    page.wait_for_function(_SETTLED)


def _waits(page: Page, selector: str) -> Locator:
    page.wait_for_selector(selector)
    return page.locator(selector)


def test_each_hit_draws_its_score_and_says_in_words_why(tab: Page) -> None:
    _go(tab, "search?q=which floor is the office on")
    hits = _waits(tab, "[data-testid=hit]")
    assert "results" in tab.inner_text("[data-testid=search-status]")
    for hit in hits.all():
        assert re.fullmatch("(Strong|Fair|Weak) match", hit.locator("[data-testid=hit-match]").inner_text())
        (figure,) = re.findall(r"\d\.\d\d", hit.locator("[data-testid=hit-score]").text_content() or "")
        shown = float(figure)
        assert not hit.locator("svg.chart-bar").is_visible()  # its parts are told on demand
        assert f"{shown:.2f}" in (hit.locator("svg.chart-bar").get_attribute("aria-label") or "")
        assert 100 * shown <= sum(hit.locator("svg.chart-bar").evaluate(_WIDTHS)) + 1
    contested = tab.locator(f'[data-uri="{_OLD_OFFICE}"]')
    assert "Contradicted by The office is on the seventh floor" in contested.inner_text()
    assert "telling words" not in contested.inner_text()
    contested.locator("summary").click()
    said = contested.locator("[data-testid=hit-why]").inner_text()
    assert "Words: it holds" in said
    assert "Meaning: not compared in this search." in said
    assert "A newer memory says otherwise" in said


def test_the_parts_of_a_score_add_up_whatever_the_rank(tab: Page) -> None:
    question = Question(mass=10.0, terms=3, known_terms=3)
    found = (
        Candidate(6.0, 0.5),
        Candidate(0.0, 0.7, True),
        Candidate(9.0, 0.31, False, 0.75),
        Candidate(3.0, None),
        Candidate(5.0, 0.6, True, 0.0, 0.5, 0.4),
        Candidate(2.0, 0.4, False, 0.0, 0.0, 0.0),
    )
    cases: list[Any] = []
    expected: list[tuple[float, float]] = []
    for (candidate, score), profile in product(zip(found, fuse(found, question), strict=True), _RANKS):
        why = {"lexical": score.lexical, "speaker": float(candidate.names_speaker), "date": candidate.names_date}
        why |= {"linked": candidate.linked, "substance": candidate.substance}
        why |= {} if score.semantic is None else {"semantic": score.semantic}
        why |= {} if profile == "relevance" else {"recency": decay(9.0, 0.05), "salience": 0.8}
        total = rank_score(profile, score.total, 0.8, 9.0, 0.05)
        cases.append(({"score": total, "why": why}, {"rank": profile, "rate": 0.05, "hybrid": True}))
        expected.append((total, score.total))
    for (parts, match, moved), (total, fused) in zip(tab.evaluate(_EXPLAINED, cases), expected, strict=True):
        assert parts == pytest.approx(total, abs=0.001)
        assert match == pytest.approx(fused, abs=0.001)
        assert moved == 1


def test_the_filters_and_the_rank_are_in_the_address_and_survive_a_reload(tab: Page) -> None:
    _go(tab, "search?q=office")
    _waits(tab, f'[data-uri="{_NEW_OFFICE}"]')
    tab.select_option("[data-testid=search-type]", "notes")
    tab.wait_for_selector(f'[data-uri="{_NEW_OFFICE}"]', state="detached")
    tab.select_option("[data-testid=search-type]", "facts")
    tab.select_option("[data-testid=search-rank]", "weighted")
    tab.wait_for_function("() => location.hash.includes('type=facts') && location.hash.includes('rank=weighted')")
    tab.reload()
    _waits(tab, f'[data-uri="{_NEW_OFFICE}"]')
    assert tab.input_value("[data-testid=search-rank]") == "weighted"
    assert tab.input_value("[data-testid=search-type]") == "facts"


def test_results_come_as_one_types_and_only_the_last_question_is_answered(tab: Page) -> None:
    _go(tab, "search")
    asked: list[str] = []

    def note(request: Request) -> None:
        if "/search" in request.url:
            asked.append(request.post_data or "")

    tab.on("request", note)
    tab.locator("[data-testid=search-query]").press_sequentially("office floor", delay=0)
    _waits(tab, f'[data-uri="{_NEW_OFFICE}"]')
    assert 0 < len(asked) < len("office floor")
    assert json.loads(asked[-1])["query"] == "office floor"
    tab.wait_for_function("() => location.hash.includes('q=office+floor')")
    tab.locator("[data-testid=search-query]").fill("")
    tab.wait_for_selector("[data-testid=empty]")
    tab.remove_listener("request", note)


def test_a_hit_marks_what_matched_and_says_in_a_line_why_it_is_there(tab: Page) -> None:
    _go(tab, "search?q=which floor is the OFFICE on")
    hit = _waits(tab, f'[data-uri="{_NEW_OFFICE}"]')
    assert hit.locator("mark").all_inner_texts() == ["Office", "office", "floor"]  # the first one in its name
    assert hit.locator("[data-testid=hit-line]").inner_text() == "Contains “office”, “floor”"
    _go(tab, "search?q=发票抬头写什么")
    hit = _waits(tab, '[data-testid=hit]:has-text("发票抬头要写公司全称")').first
    assert "发票抬头" in "".join(hit.locator("mark").all_inner_texts())


def test_a_filter_is_a_chip_that_can_be_dropped(tab: Page) -> None:
    _go(tab, "search?q=office&type=notes")
    tab.wait_for_selector("[data-testid=search-type-drop]:not([hidden])")
    tab.click("[data-testid=search-type-drop]")
    _waits(tab, f'[data-uri="{_NEW_OFFICE}"]')
    assert "type=" not in tab.evaluate("location.hash")


def test_nothing_found_is_explained_and_offers_a_way_on(tab: Page) -> None:
    _go(tab, "search?q=office&type=skills")
    said = _waits(tab, "[data-testid=empty]").inner_text()
    assert "within these filters" in said
    tab.click("text=Search without filters")
    _waits(tab, "[data-testid=hit]")


def test_arrows_walk_through_the_hits_and_enter_opens_one(tab: Page) -> None:
    _go(tab, "search?q=支付系统 database")
    _waits(tab, "[data-testid=hit]:nth-of-type(2)")
    tab.focus("[data-testid=search-query]")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.dataset.testid") == "hit-link"
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate("document.activeElement.dataset.testid") == "search-query"
    tab.keyboard.press("ArrowDown")
    first = tab.evaluate("document.activeElement.href")
    tab.keyboard.press("j")
    assert tab.evaluate("document.activeElement.href") != first
    tab.keyboard.press("k")
    assert tab.evaluate("document.activeElement.href") == first
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => location.hash.startsWith('#/memory/')")


def test_a_commit_shows_the_changed_words_and_is_undone_after_a_preview(tab: Page) -> None:
    _go(tab, f"history?uri={STYLE}")
    commits = _waits(tab, "[data-testid=commit]")
    before = commits.count()
    commits.first.locator("[data-testid=commit-link]").click()
    diff = _waits(tab, "[data-testid=file-diff] [data-testid=diff]").first
    assert tab.inner_text("[data-testid=file-diff] summary") == "4 lines added, 1 changed"
    assert "short names" in diff.locator(".diff-text.diff-at-removed").first.inner_text()
    assert "full words as" in " ".join(diff.locator("ins").all_inner_texts())
    assert "added:" in diff.locator(".diff-at-added .visually-hidden").first.evaluate("each => each.textContent")
    tab.click("[data-testid=undo]")
    assert "Would change Python code style" in _waits(tab, "[data-testid=undo-preview]").inner_text()
    tab.click("[data-testid=undo-confirm]")
    receipt = _waits(tab, "[data-testid=undo-receipt]")
    assert "Changed Python code style" in receipt.inner_text()
    receipt.locator("a").first.click()
    tab.wait_for_selector("text=undoes")
    _go(tab, f"history?uri={STYLE}")
    tab.wait_for_selector("[data-testid=undone]")
    assert tab.locator("[data-testid=commit]").count() == before + 1


def test_a_row_of_history_names_its_conversation_as_the_list_does_and_leads_to_its_undo(tab: Page) -> None:
    _go(tab, "history")
    row = _waits(tab, "[data-testid=commit]:has-text('Which roses stand half shade in the garden?')").last
    assert "garden," not in row.inner_text()
    row.get_by_test_id("commit-undo").click()
    _waits(tab, "[data-testid=undo-preview]")
    assert "Which roses stand half shade in the garden?" in tab.inner_text("main h1")


def test_history_stands_in_the_order_of_the_times_that_it_shows(tab: Page) -> None:
    _go(tab, "history")
    times = _waits(tab, ".commit time").evaluate_all("all => all.map(each => Date.parse(each.dateTime))")
    assert times == sorted(times, reverse=True)


def test_skipped_lines_of_a_diff_are_shown_on_demand(tab: Page) -> None:
    _go(tab, f"history?uri={STYLE}")
    _waits(tab, "[data-testid=commit-link]").first.click()
    _waits(tab, "[data-testid=diff-fields]").first.click()
    tab.locator("[data-testid=diff-expand]").last.click()
    tab.wait_for_selector("[data-testid=diff-expand]", state="detached")


def test_heat_has_one_bar_for_each_segment_and_the_threshold(tab: Page) -> None:
    _go(tab, "heat")
    rows = _waits(tab, "[data-testid=heat-row]")
    facts = tab.evaluate("import('/ui/js/api.js').then(api => api.get('/heat'))")
    assert len(facts["segments"]) >= 2
    assert rows.evaluate_all("all => all.map(each => each.dataset.uri)") == [each["uri"] for each in facts["segments"]]
    assert "At 5," in tab.inner_text("[data-testid=heat-threshold]")
    for row, segment in zip(rows.all(), facts["segments"], strict=True):
        assert row.locator("svg.chart-bar").count() == 1
        assert row.locator("svg .chart-mark").count() == 1
        assert f"exchanges {segment['interactions']}," in (row.locator("svg").get_attribute("aria-label") or "")
    link = rows.locator("[href='#/session/garden']").first
    assert link.inner_text() == "Which roses stand half shade in the garden?"
    longest = max(segment["heat"] for segment in facts["segments"])
    width = sum(rows.first.locator("svg.chart-bar").evaluate(_WIDTHS))
    assert width == pytest.approx(100 * longest / (1.08 * max(5.0, longest)), abs=1.5)


def test_the_list_beside_the_curve_names_every_memory_and_marks_its_point(tab: Page) -> None:
    _go(tab, "heat")
    names = _waits(tab, "[data-testid=decay-list] a")
    dots = tab.locator("[data-testid=decay-curve] .chart-dot")
    shown = dots.evaluate_all("all => all.flatMap(each => JSON.parse(each.dataset.keys))")
    assert len(shown) == names.count() > 0
    names.first.focus()
    assert tab.locator(".chart-dot.is-marked").count() == 1


def test_a_conversation_opens_at_the_line_that_was_asked_for(tab: Page) -> None:
    _go(tab, "session/garden?line=2")
    wanted = _waits(tab, ".turn.is-wanted")
    assert wanted.get_attribute("data-line") == "2"
    assert "by the wall" in wanted.inner_text()
    assert "#3" in wanted.inner_text()  # people count from 1
    assert "linked message" in wanted.inner_text()
    tab.wait_for_function("() => document.activeElement?.dataset.line === '2'")
    assert tab.locator(".segment").count() >= 2


def test_conversations_whose_memories_are_not_yet_extracted_are_counted_and_shown_alone(tab: Page) -> None:
    _go(tab, "sessions")
    every = _waits(tab, "[data-testid=session]").count()
    assert tab.inner_text("[data-testid=sessions-all] .count") == str(every)
    waiting = int(tab.inner_text("[data-testid=sessions-waiting] .count"))
    tab.click("[data-testid=sessions-waiting]")
    tab.wait_for_selector("[data-testid=sessions-waiting][aria-current=true]")
    assert tab.locator("[data-testid=session]").count() == waiting > 0


def test_the_address_of_a_log_opens_its_conversation(tab: Page) -> None:
    _go(tab, "memory/session/default/garden/messages.jsonl")
    tab.wait_for_function("() => location.hash === '#/session/garden'")
    _waits(tab, ".turn")


def test_the_queue_begins_with_what_the_reader_decides_and_says_once_what_an_extraction_needs(tab: Page) -> None:
    _go(tab, "queue")
    rows = _waits(tab, "[data-testid=queue-row]")
    review, extractions = tab.locator("main h2").all_inner_texts()[:2]
    assert review.startswith("For your review ")
    assert extractions == f"Conversations whose memories are not yet extracted {rows.count()}"
    assert all(re.search(r" · \d+ messages?", said) for said in rows.all_inner_texts())
    assert "We fly to Osaka on 2 May." in " ".join(rows.all_inner_texts())  # by its title, not by its id
    for absent in ("queue-reason", "extract", "extract-all"):
        assert tab.get_by_test_id(absent).count() == 0
    assert _waits(tab, "[data-testid=no-model]").inner_text() == "Extracting memories needs a language model."
    assert tab.get_by_role("link", name="Set up a language model").get_attribute("href") == "#/settings"


def test_names_are_told_without_what_only_files_need(tab: Page) -> None:
    _go(tab, "history")
    proposed = _waits(tab, ".commit-line:has-text('Proposed')").first.inner_text()
    assert re.search(r"\b[0-9a-f]{8}\b", proposed) is None
    _go(tab, "sessions")
    row = _waits(tab, "[data-testid=session]:has-text('We fly to Osaka on 2 May.')").inner_text()
    assert "osaka-trip" not in row
    assert "no topics" not in row
    _go(tab, "search?q=PostgreSQL payment Chengdu")
    names = _waits(tab, "[data-testid=hit-link]").all_inner_texts()
    assert {"2026-03-17 Moved to PostgreSQL 18", "Profile"} <= set(names)


def test_a_proposal_is_let_in_or_declined(tab: Page) -> None:
    _go(tab, "queue")
    first = _waits(tab, "[data-testid=proposal]:has-text('Roses')")
    assert "Alba roses stand half shade." in first.inner_text()
    first.locator("[data-testid=review-accept]").click()
    _waits(tab, "[data-testid=proposal] [data-testid=receipt]")
    second = tab.locator("[data-testid=proposal]:has-text('发票')")
    second.locator("[data-testid=review-reject]").click()
    second.locator("[data-testid=receipt]").wait_for()
    tab.reload()
    tab.wait_for_selector("text=Nothing to review")


def test_what_is_archived_is_found_by_its_words_and_comes_back(tab: Page, site: Site) -> None:
    _go(tab, "archive")
    assert _waits(tab, "[data-testid=archived]").count() == 2
    tab.fill("[data-testid=archive-words]", "passport")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("[data-testid=archived]:has-text('旧')", state="detached")
    found = tab.locator("[data-testid=archived]")
    assert "by its owner" in found.inner_text()
    found.locator("[data-testid=restore]").click()
    assert "Ferry to Gulangyu" in _waits(tab, "[data-testid=restore-receipt]").inner_text()
    assert (site.home / _FERRY.removeprefix("viking://")).is_file()


def test_health_is_told_in_words_of_both_languages(tab: Page) -> None:
    _go(tab, "health")
    assert "attention" in _waits(tab, "[data-testid=verdict]").inner_text()
    finding = tab.locator("[data-testid=finding]:has-text('Latin')").first
    assert "What is written in a file" in finding.inner_text()
    assert "save it as UTF-8" in finding.inner_text()
    figures = _waits(tab, "[data-testid=figures]").inner_text()
    assert "Not yet extracted" in figures
    tab.click("[data-testid=language]")
    tab.wait_for_selector("[data-testid=finding]:has-text('请另存为 UTF-8')")
    tab.click("[data-testid=language]")
    tab.wait_for_selector("[data-testid=verdict]:has-text('attention')")


def test_the_trail_shows_what_a_question_found_and_asks_it_again(tab: Page) -> None:
    _go(tab, "search?q=which floor is the office on")
    _waits(tab, "[data-testid=hit]")
    _go(tab, "health")
    asked = _waits(tab, "[data-testid=trail] li:has-text('还喝绿茶吗')").first
    assert tab.locator("[data-testid=trail] li:has-text('which floor')").count() == 0
    assert "喝茶" in asked.inner_text()
    asked.locator("a").first.click()
    tab.wait_for_selector(f'[data-uri="{GREEN_TEA}"]')


def test_every_view_changes_its_language_at_once_and_shows_no_key(tab: Page) -> None:
    texts = json.loads((_LOCALES / "en.json").read_text(encoding="utf-8"))
    keys = {name.removesuffix(".one").removesuffix(".other") for name in texts}
    tab.evaluate("import('/ui/js/i18n.js').then(texts => texts.setLanguage('en'))")
    for place in _PLACES:
        _go(tab, place)
        seen = []
        for _ in range(2):
            labels = tab.eval_on_selector_all("main [aria-label]", "all => all.map(each => each.ariaLabel)")
            text = "\n".join([tab.inner_text("main"), *labels])
            assert not keys & set(re.findall(r"[a-z_]+(?:\.[a-z0-9_]+)+", text)), place
            assert not re.search(r"\{\w+\}|undefined|NaN", text), place
            seen.append((tab.inner_text("main h1"), text))
            tab.evaluate("() => document.querySelector('main > *').dataset.old = ''")
            tab.click("[data-testid=language]")
            tab.wait_for_function("() => !document.querySelector('main > [data-old]')")
            tab.wait_for_function(_SETTLED)
        assert seen[0][1] != seen[1][1], place
        assert re.search("[\u4e00-\u9fff]", seen[1][1]), place
        assert place.startswith("session/") or seen[0][0] != seen[1][0], place


def test_no_view_is_wider_than_a_phone_and_a_diff_has_one_column_there(tab: Page) -> None:
    tab.set_viewport_size({"width": 360, "height": 740})
    for place in _PLACES:
        _go(tab, place)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360, place
    _go(tab, f"history?uri={STYLE}")
    _waits(tab, "[data-testid=commit-link]").first.click()
    changed = _waits(tab, ".diff-changed").first
    left, right = (changed.locator(f"td.diff-at-{kind}").last.bounding_box() for kind in ("removed", "added"))
    assert left is not None
    assert right is not None
    assert right["y"] >= left["y"] + left["height"] - 1


def test_the_graph_is_walked_and_a_relation_is_added_changed_and_removed(tab: Page, site: Site) -> None:
    def relations(uri: str) -> list[tuple[str, str, float]]:
        with open_memory(words_only(site.home)) as memory:
            links = memory.read(ReadRequest(uri)).links
        return sorted((link.uri, link.relation, link.strength) for link in links)

    before = relations(GREEN_TEA)
    _go(tab, f"graph?around={_OLD_OFFICE}")
    tab.wait_for_selector("[data-testid=graph][data-drawn]")
    edge = _waits(tab, f'[data-testid=graph-edge][data-uri="{_NEW_OFFICE}"]')
    assert "contradicts" in edge.inner_text()
    edge.locator(".link-button").click()
    tab.wait_for_selector(f'[data-testid=graph-edge][data-uri="{_OLD_OFFICE}"]')
    assert (tab.get_by_test_id("graph-open").get_attribute("href") or "").startswith("#/memory/")
    tab.click("[data-testid=graph-all]")
    tab.wait_for_selector("[data-testid=graph-all]", state="hidden")
    tab.click(".graph-list summary")
    tab.click(f'[data-testid=graph-node][data-uri="{GREEN_TEA}"]')
    tab.select_option("[data-testid=graph-new]", "supports")
    tab.fill("[data-testid=graph-other]", "Office moved")
    tab.click("[data-testid=graph-save]")
    edge = _waits(tab, f'[data-testid=graph-edge][data-uri="{_NEW_OFFICE}"]')
    assert (_NEW_OFFICE, "supports", 0.5) in relations(GREEN_TEA)
    edge.get_by_test_id("graph-change").select_option("refines")
    tab.wait_for_selector(f'[data-testid=graph-edge][data-uri="{_NEW_OFFICE}"]:has(.badge:has-text("refines"))')
    assert (_NEW_OFFICE, "refines", 0.5) in relations(GREEN_TEA)
    edge.get_by_test_id("graph-remove").click()
    edge.wait_for(state="detached")
    assert relations(GREEN_TEA) == before


def test_what_others_commit_leaves_the_graphs_open_list_and_half_written_relation(tab: Page, site: Site) -> None:
    _go(tab, f"graph?around={_OLD_OFFICE}")
    tab.wait_for_selector("[data-testid=graph][data-drawn]")
    tab.click(".graph-list summary")
    tab.fill("[data-testid=graph-other]", "Office mo")
    link = {"uri": GREEN_TEA, "relation": "similar", "strength": 0.2}
    with open_memory(words_only(site.home)) as memory:
        receipt = memory.commit(CommitRequest(operations={"edit_operations": [{"uri": _OLD_OFFICE, "links": [link]}]}))
        assert _waits(tab, f'[data-testid=graph-node][data-uri="{GREEN_TEA}"]').is_visible()
        assert tab.input_value("[data-testid=graph-other]") == "Office mo"
        memory.run(UNDO, UndoRequest(receipt.commit_id))


def test_the_picture_of_the_graph_stays_when_others_commit_what_is_not_in_it(tab: Page, site: Site) -> None:
    _go(tab, "graph")
    tab.wait_for_selector("[data-testid=graph][data-drawn]")
    tab.evaluate("() => { document.querySelector('[data-testid=graph] canvas').dataset.same = ''; }")
    tab.click(".graph-list summary")
    with open_memory(words_only(site.home)) as memory:
        receipt = memory.commit(CommitRequest("The stairs creak.", memory_type="facts", fields={"topic": "Stairs"}))
        assert _waits(tab, "[data-testid=graph-node]:has-text('Stairs')").is_visible()
        assert tab.locator("[data-testid=graph] canvas[data-same]").count() == 1
        memory.run(UNDO, UndoRequest(receipt.commit_id))


def test_the_graph_is_filtered_by_type(tab: Page) -> None:
    _go(tab, "graph")
    tab.wait_for_selector("[data-testid=graph][data-drawn]")
    drawn, listed = int(tab.get_by_test_id("graph").get_attribute("data-drawn") or 0), tab.get_by_test_id("graph-node")
    assert 2 <= drawn < listed.count()  # what is connected with nothing is in the list alone
    count = tab.get_by_test_id("graph-count")
    assert re.match(r"\d+ memories, \d conversations? · \d+ without connections", count.inner_text())
    tab.click("[data-testid=graph-to-list]")
    assert listed.first.is_visible()
    tab.select_option("[data-testid=graph-type]", "facts")
    tab.wait_for_function("() => location.hash.includes('type=facts')")
    tab.wait_for_selector("[data-testid=graph-count]:has-text('2 memories')")
    uris = tab.locator("[data-testid=graph-node]").evaluate_all("all => all.map(each => each.dataset.uri)")
    assert {"/facts/" in uri for uri in uris if "/memories/" in uri} == {True}


def test_a_conversation_shows_what_was_remembered_beside_its_turns_and_is_searched(tab: Page) -> None:
    _go(tab, "sessions")
    link = _waits(tab, '[data-testid=session-link]:has-text("We fly to Osaka on 2 May.")')
    link.click()
    told = _waits(tab, "[data-testid=session-memories]")
    assert "Hotels" in told.inner_text()
    assert tab.inner_text("main h1") == "We fly to Osaka on 2 May."
    turn = tab.locator("[data-testid=message]", has=tab.locator("[data-testid=turn-told]", has_text="Hotels"))
    assert "my father walks badly" in turn.inner_text()
    tab.fill("[data-testid=session-words]", "FATHER station")
    tab.wait_for_function("() => document.querySelectorAll('[data-testid=message]').length === 1")
    assert tab.locator("[data-testid=message] mark").all_inner_texts() == ["father", "station"]
    tab.reload()
    _waits(tab, "[data-testid=message] mark")
    turn.locator("a", has_text="Hotels").click()
    _waits(tab, "[data-testid=sources]").locator("a").first.click()
    assert "my father walks badly" in _waits(tab, ".turn.is-wanted").inner_text()


def test_the_calendar_shows_what_happened_month_by_month(tab: Page) -> None:
    _go(tab, "calendar?month=2026-04")
    _waits(tab, "[data-testid=calendar-month]:has-text('April 2026')")
    tab.click("[data-testid=calendar-later]")
    event = _waits(tab, "[data-testid=calendar-day][data-day='2026-05-02'] [data-testid=calendar-event]")
    assert "Osaka" in event.inner_text()
    assert "month=2026-05" in tab.evaluate("location.hash")
    event.click()
    _waits(tab, "[data-testid=title]:has-text('Osaka')")


def test_the_calendar_names_what_was_added_and_says_only_where_it_is_so_that_nothing_is_dated(tab: Page) -> None:
    at = datetime.now(UTC) - timedelta(days=30)
    _go(tab, f"calendar?month={at:%Y-%m}")
    added = _waits(tab, f"[data-testid=calendar-day][data-day='{at:%Y-%m-%d}'] [data-testid=calendar-added]")
    assert any("+ Office" in each for each in added.all_inner_texts()), added.all_inner_texts()
    assert tab.get_by_test_id("calendar-none").is_visible()
    _go(tab, "calendar?month=2026-05")
    _waits(tab, "[data-testid=calendar-event]")
    assert not tab.get_by_test_id("calendar-none").is_visible()


def test_growth_use_and_freshness_are_pictures_and_tables(tab: Page) -> None:
    _go(tab, "heat")
    box = tab.get_by_test_id("growth")
    curve = box.get_by_test_id("growth-curve")
    curve.wait_for()
    assert "memories so far" in (curve.get_attribute("aria-label") or "")
    assert box.get_by_test_id("freshness").locator("li").count() == 4
    box.locator("summary").first.click()
    assert box.locator("table").first.locator("tbody tr").count() == curve.locator("circle").count()
