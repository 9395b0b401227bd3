"""Short term to segments: what overflows, what joins what, how exchanges are linked, what a segment's file keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_core.core.commit.forgotten import without_lines
from memory_core.core.memory.exchange import exchange_spans
from memory_core.core.memory.message import dump_lines
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.text import extractive_summary
from memory_core.core.text.extractive_summary import common_keywords, keywords
from memory_core.features.tiers import segmenting
from memory_core.features.tiers.segment import (
    PERSON,
    Segment,
    SegmentExchange,
    SessionLog,
    dump_segment,
    parse_segment,
    readable_exchanges,
    spans_of,
)
from memory_core.features.tiers.segmenting import Sorting, SortingRules, exchanges_before, extract, overflowing
from tests.counting import is_linear
from tests.features.tiers import talks

NOW = "2026-05-02T10:00:00+00:00"
TEMPLES = talks.TEMPLES[:2]
PAYMENTS = [
    ("Our payment callback times out. What should we do?", "Make the payment callback idempotent and retry it."),
    ("How many retries for the payment callback?", "Five retries, then a dead letter queue for the payment."),
]
CHINESE_TEMPLES = [
    ("京都有哪些安静的寺庙庭院值得去？", "龙安寺和银阁寺的寺庙庭院都很安静。"),
    ("龙安寺的寺庙庭院几点开门？", "龙安寺的庭院早上八点开门。"),
]
CHINESE_PAYMENTS = [("支付系统的回调经常超时，怎么办？", "支付回调要做成幂等的，超时之后重试。")]


def log(*exchanges: tuple[str, str]) -> str:
    return dump_lines(parse_messages(talks.messages(*exchanges)))


def sorted_in(text: str, stored: dict[str, Segment] | None = None) -> list[Segment]:
    session, known = SessionLog(text), stored or {}
    sorting = Sorting(session, known, SortingRules(), "s1", NOW)
    stored_exchanges = [exchange for segment in known.values() for exchange in segment.exchanges]
    exchanges = list(overflowing(session, spans_of(stored_exchanges), 0))
    for exchange, before in zip(exchanges, exchanges_before(session, stored_exchanges, exchanges), strict=True):
        sorting.add(exchange, before)
    return [segment for _, segment in sorting.result() if segment is not None]


def firsts(segment: Segment) -> list[int]:
    return [exchange.first for exchange in segment.exchanges]


def test_an_exchange_is_a_question_with_all_its_answers_and_between_people_a_turn_with_its_replies() -> None:
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "user", "assistant"]
    asked = parse_messages([{"role": role, "content": f"{role} says"} for role in roles])
    assert exchange_spans(asked) == [(0, 5), (5, 8)]
    names = ["Ann", "Bob", "Ann", "Bob", "Cai"]
    talk = parse_messages([{"role": "user", "name": name, "content": "well"} for name in names])
    assert exchange_spans(talk) == [(0, 2), (2, 5)]


def test_exchanges_of_one_topic_join_and_other_topics_begin_segments_in_english_and_chinese() -> None:
    segments = sorted_in(log(*TEMPLES, *PAYMENTS, *CHINESE_TEMPLES, *CHINESE_PAYMENTS))
    assert [firsts(segment) for segment in segments] == [[0, 2], [4, 6], [8, 10], [12]]
    titles = [segment.title for segment in segments]
    assert "temple" in titles[0]
    assert "payment" in titles[1]
    assert titles[2].startswith("京都有哪些")
    assert "支付" in titles[3]


def test_an_exchange_joins_a_stored_segment_and_the_others_stay_untouched() -> None:
    stored = dict(zip("ab", sorted_in(log(*TEMPLES, *PAYMENTS)), strict=True))
    again = ("Is the quiet temple garden in Kyoto open in winter?", "Temple gardens in Kyoto are open all winter.")
    (changed,) = sorted_in(log(*TEMPLES, *PAYMENTS, again), stored)
    assert firsts(changed) == [0, 2, 8]
    assert changed.interactions == 3


def test_the_threshold_and_the_weight_of_keywords_decide() -> None:
    session = SessionLog(log(*TEMPLES))
    for rules, segments in ((SortingRules(threshold=2.5), 2), (SortingRules(threshold=0.4, keyword_weight=0.0), 1)):
        sorting = Sorting(session, {}, rules, "s1", NOW)
        for exchange in overflowing(session, [], 0):
            sorting.add(exchange, None)
        assert len(sorting.result()) == segments


def test_exchanges_that_go_on_are_linked_both_ways_and_their_chain_says_what_it_is_about() -> None:
    temples, payments = sorted_in(log(*TEMPLES, *PAYMENTS))
    first, second = temples.exchanges
    assert (first.previous, first.next, second.previous, second.next) == (None, 2, 0, None)
    assert (first.chain, second.chain) == (0, 0)
    assert "temple" in temples.chains[0]
    assert payments.exchanges[0].previous is None
    assert list(payments.chains) == [4]


def test_a_chain_is_kept_in_step_when_a_later_commit_goes_on_with_it() -> None:
    (stored,) = sorted_in(log(TEMPLES[0]))
    (grown,) = sorted_in(log(*TEMPLES), {"a": stored})
    assert grown.exchanges[0].next == 2
    assert grown.chains[0].endswith("(#0–3)")


def test_messages_of_projects_and_private_ones_never_share_a_segment() -> None:
    places = [("acme", False), ("acme", True), (None, False), ("other", False)]
    kept = [
        replace(message, project=places[at // 2][0], private=places[at // 2][1])
        for at, message in enumerate(parse_messages(talks.messages(*TEMPLES, *TEMPLES)))
    ]
    segments = sorted_in(dump_lines(kept))
    assert [(segment.project, segment.private) for segment in segments] == places


def test_an_extracted_summary_is_word_for_word_and_holds_the_keywords() -> None:
    (segment,) = sorted_in(log(*CHINESE_TEMPLES))
    said = "".join(text for pair in CHINESE_TEMPLES for text in pair)
    assert segment.summary
    assert all(sentence in said for sentence in segment.summary.replace("？", "？|").replace("。", "。|").split("|"))
    assert extract([("", "The cat sleeps. Payment callbacks need retries. It rains.")], ["payment", "callback"]) == (
        "Payment callbacks need retries."
    )


def test_an_extracted_summary_carries_who_said_it() -> None:
    turns = [("Sam", "I sold the bakery. 面包店卖了。"), ("Evan", "I bought a bakery in Ghent."), ("", "It rains.")]
    assert extract(turns, ["sold", "ghent"]) == "Sam: I sold the bakery. Evan: I bought a bakery in Ghent."


def test_keywords_are_informative_words_in_english_and_chinese() -> None:
    assert keywords("The payment callback timed out, so the payment callbacks need retries.")[:2] == (
        "callback",
        "payment",
    )
    assert keywords("我现在负责支付系统。支付系统的回调经常超时。")[0] == "支付系统"
    assert keywords("I was just so happy, thanks!") == ()


def test_a_file_comes_back_as_it_was_written() -> None:
    for segment in sorted_in(log(*TEMPLES, *CHINESE_TEMPLES)):
        text = dump_segment(segment)
        assert parse_segment(text) == segment
        assert dump_segment(parse_segment(text) or segment) == text


def test_a_summary_that_a_person_wrote_stays_and_so_do_their_title_and_notes() -> None:
    (segment,) = sorted_in(log(TEMPLES[0]))
    text = dump_segment(segment)
    edited = text.replace(segment.summary, "We plan the trip to Kyoto.", 1).replace(f"# {segment.title}", "# Our trip")
    edited = edited.replace("\n\n<!-- MEMORY_FIELDS", "\n\nRemember the bus passes.\n\n<!-- MEMORY_FIELDS")
    read = parse_segment(edited)
    assert read is not None
    assert (read.title, read.summary, read.summary_by) == ("Our trip", "We plan the trip to Kyoto.", PERSON)
    (grown,) = sorted_in(log(*TEMPLES), {"a": read})
    written = dump_segment(grown)
    assert grown.summary == "We plan the trip to Kyoto."
    assert written.startswith("# Our trip\n\nWe plan the trip to Kyoto.\n")
    assert "messages.jsonl#2–3" in written
    assert written.count("Remember the bus passes.") == 1


def test_what_was_forgotten_leaves_the_chain_and_nothing_is_linked_with_it() -> None:
    secret = (
        "Is the safe code 4711 of the quiet temple garden in Kyoto secret?",
        "The temple safe in Kyoto is secret.",
    )
    third = ("Are temple gardens in Kyoto open in winter?", "Kyoto temple gardens are quiet.")
    said = log(TEMPLES[0], secret, third)
    stored = {str(at): each for at, each in enumerate(sorted_in(said))}
    assert [[exchange.chain for exchange in segment.exchanges] for segment in stored.values()] == [[0, 0, 0]]

    def mended(*lines: int) -> Segment:
        sorting = Sorting(SessionLog(without_lines(said, set(lines))), stored, SortingRules(), "s1", NOW)
        sorting.mend()
        ((_, segment),) = sorting.result()
        assert segment is not None
        return segment

    middle = mended(2, 3)
    assert [(exchange.first, exchange.previous, exchange.next) for exchange in middle.exchanges] == [
        (0, None, 4),
        (4, 0, None),
    ]
    assert "safe" not in middle.chains[0]
    last = mended(2, 3, 4, 5)
    assert [(exchange.first, exchange.previous, exchange.next) for exchange in last.exchanges] == [(0, None, None)]
    assert last.chains == {}


def test_what_did_not_change_is_not_read_for_its_keywords_when_a_segment_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = log(*TEMPLES, *PAYMENTS)
    stored = {str(at): each for at, each in enumerate(sorted_in(said))}
    asked: list[str] = []

    def noted(text: str, limit: int) -> tuple[str, ...]:
        asked.append(text)
        return keywords(text, limit)

    monkeypatch.setattr(extractive_summary, "keywords", noted)

    def mended(text: str) -> int:
        sorting = Sorting(SessionLog(text), stored, SortingRules(), "s1", NOW)
        sorting.mend()
        return len(sorting.result())

    assert mended(said) == 0
    assert asked == []
    assert mended(without_lines(said, {0})) == 1
    assert not any("payment" in text for text in asked)


def test_what_goes_on_beyond_a_full_segment_or_chain_begins_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmenting, "MOST_EXCHANGES", 3)
    monkeypatch.setattr(segmenting, "MOST_CHAIN_LINES", 8)
    segments = sorted_in(log(*TEMPLES[:1] * 8))
    assert [firsts(segment) for segment in segments] == [[0, 2, 4], [6, 8, 10], [12, 14]]
    assert [[exchange.chain for exchange in segment.exchanges] for segment in segments] == [[0] * 3, [0, 8, 8], [8] * 2]
    assert [list(segment.chains) for segment in segments] == [[0], [0, 8], [8]]


def test_a_long_conversation_on_one_topic_costs_no_more_for_each_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmenting, "MOST_EXCHANGES", 5)
    monkeypatch.setattr(segmenting, "MOST_CHAIN_LINES", 10)
    read: list[int] = []

    def counted(lists: list[tuple[str, ...]], limit: int) -> tuple[str, ...]:
        read.append(len(lists))
        return common_keywords(lists, limit)

    monkeypatch.setattr(segmenting, "common_keywords", counted)

    def lists_read(exchanges: int) -> int:
        read.clear()
        sorted_in(log(*TEMPLES[:1] * exchanges))
        return sum(read)

    assert is_linear(lists_read, 20)


def test_nothing_joins_an_archived_segment() -> None:
    (stored,) = sorted_in(log(TEMPLES[0]))
    changed = sorted_in(log(*TEMPLES), {"viking://archive/session/default/s1/segments/a.md": stored})
    assert [firsts(segment) for segment in changed] == [[0], [2]]


def test_a_damaged_file_is_no_segment() -> None:
    (segment,) = sorted_in(log(TEMPLES[0]))
    assert parse_segment("# Notes of mine\n\nNothing else.\n") is None
    assert parse_segment(dump_segment(segment).replace('"pages": [', '"pages": [[')) is None


def test_of_a_damaged_file_the_exchanges_are_read_as_far_as_it_tells() -> None:
    (segment,) = sorted_in(log(*TEMPLES))
    text = dump_segment(
        replace(segment, exchanges=(replace(segment.exchanges[0], analysed=True), segment.exchanges[1]))
    )
    damaged = readable_exchanges(text.replace('"pages": [', '"pages": [,'))
    assert [(exchange.first, exchange.last, exchange.analysed) for exchange in damaged] == [(0, 1, True), (2, 3, False)]
    body = text.partition("<!-- MEMORY_FIELDS")[0]
    assert [(exchange.first, exchange.last) for exchange in readable_exchanges(body)] == [(0, 1), (2, 3)]
    assert readable_exchanges("# Notes of mine\n\n- bread\n") == ()


def test_what_lies_between_the_exchanges_of_segments_overflows_whatever_stays_at_the_end() -> None:
    session = SessionLog(log(*TEMPLES, *PAYMENTS))
    assert [exchange.first for exchange in overflowing(session, ((0, 2), (4, 6)), 5)] == [2]
    assert [exchange.first for exchange in overflowing(session, ((2, 4),), 0)] == [0, 4, 6]


def test_an_exchange_that_comes_back_is_linked_with_those_around_it() -> None:
    third = ("Is the quiet temple garden in Kyoto open in winter?", "Temple gardens in Kyoto are open all winter.")
    text = log(*TEMPLES, third)
    (whole,) = sorted_in(text)
    for lost in range(3):
        rest = replace(whole, exchanges=tuple(exchange for at, exchange in enumerate(whole.exchanges) if at != lost))
        (mended,) = sorted_in(text, {"a": rest})
        assert [(exchange.previous, exchange.next) for exchange in mended.exchanges] == [(None, 2), (0, 4), (2, None)]


def test_exchanges_are_compared_with_the_newest_segments_and_with_those_of_their_chain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segmenting, "COMPARED", 1)
    stored = dict(zip("ab", sorted_in(log(*TEMPLES, *PAYMENTS)), strict=True))
    again = ("Is the quiet temple garden in Kyoto open in winter?", "Temple gardens in Kyoto are open all winter.")
    (begun,) = sorted_in(log(*TEMPLES, *PAYMENTS, again), stored)
    assert firsts(begun) == [8]
    (temples,) = sorted_in(log(*TEMPLES))
    (other,) = sorted_in(log(*PAYMENTS))
    newer = replace(other, exchanges=(SegmentExchange(90, 91, chain=90), SegmentExchange(92, 93, chain=90)))
    sorting = Sorting(SessionLog(log(*TEMPLES, again)), {"a": temples, "b": newer}, SortingRules(), "s1", NOW)
    exchange, before = sorting.log.exchange(4, 5), sorting.log.exchange(2, 3)
    assert exchange is not None
    sorting.add(exchange, before)
    assert [name for name, _ in sorting.result()] == ["a"]


def test_the_summary_of_a_long_segment_goes_on_from_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmenting, "_SUMMED_EXCHANGES", 1)
    said = "".join(text for pair in TEMPLES * 2 for text in pair)
    (segment,) = sorted_in(log(*TEMPLES, *TEMPLES))
    assert len(segment.exchanges) == 4
    sentences = segment.summary.replace(". ", ".|").replace("? ", "?|").split("|")
    assert len(sentences) > 1
    assert len(set(sentences)) == len(sentences)
    assert all(sentence in said for sentence in sentences)
