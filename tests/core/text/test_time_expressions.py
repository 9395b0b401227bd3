"""Which times a text names, in both languages, and which words only look like one."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory_core.core.text.time_expressions import time_spans

#: A Wednesday.
NOW = datetime(2023, 6, 14, 10, 0, tzinfo=UTC)


def spans(text: str, now: datetime = NOW) -> list[str]:
    """Each span as ``first/last``, or one day."""
    return [
        str(found.start) if found.start == found.end else f"{found.start}/{found.end}"
        for found in time_spans(text, now)
    ]


ABSOLUTE = {
    "2023-05-07": "7 May 2023|the 7th of May, 2023|May 7th, 2023|May 7, 2023|2023-05-07|2023/5/7|2023-05-07T10:00:00Z"
    "|7.5.2023|2023年5月7日|二〇二三年五月七日|２０２３年５月７日",
    "2022-12-25": "25/12/2022",
    "2022-10-01/2022-10-31": "10/2022",
    "2023-05-01/2023-05-31": "May 2023|2023年5月",
    "2024-02-01/2024-02-29": "Feb. 2024",
    "2022-01-01/2022-12-31": "in 2022|2022年",
    "2022-06-01/2022-08-31": "summer of 2022|2022年夏天",
    "2022-12-01/2023-02-28": "winter 2022",
    "2023-01-01/2023-01-07": "the first week of 2023|2023年第一周",
    "2023-05-25/2023-05-31": "the last week of May 2023|2023年5月最后一周",
    "2023-07-08/2023-07-09": "the second weekend in July 2023",
    "2023-05-01/2023-05-10": "the beginning of May 2023|2023年5月初|2023年五月上旬",
    "2023-05-21/2023-05-31": "end of May 2023|2023年5月底",
    "2022-12-01/2022-12-31": "the last month of 2022",
    "2023-05-01": "the first day of May 2023",
    "2023-04-29/2023-04-30": "the weekend before 7 May 2023",
    "2023-07-14": "the Friday before 15 July 2023",
    "2023-05-28": "the Sunday after 25 May 2023",
    "2023-07-03/2023-07-09": "the week of 3 July 2023",
    "2022-03-05": "2022 年 3 月 5 号",
}
RELATIVE = {
    "2023-05-01/2023-05-31": "last May|in may|last month|上个月",
    "2022-06-01/2022-06-30": "last June",
    "2023-03-01/2023-03-31": "this March",
    "2022-12-01/2022-12-31": "in December|半年前|half a year ago",
    "2023-05-07": "on May 7th|5月7日|五月七号",
    "2023-03-05": "on 5 march",
    "2022-12-25": "on 25 December",
    "2023-06-05/2023-06-11": "last week",
    "2023-06-09": "last Friday",
    "2023-06-07": "last Wednesday|上周三|上週三",
    "2023-06-14": "on Wednesday|今天|周三|最近半天|半小时前|half an hour ago",
    "2023-06-12": "since Monday|the day before yesterday|前天",
    "2023-06-13": "yesterday|last night|昨晚",
    "2023-06-11": "three days ago|大前天|星期天|禮拜天|三天前",
    "2023-06-04": "10 days ago",
    "2023-05-28/2023-06-03": "two weeks ago|两周前",
    "2023-04-01/2023-04-30": "a couple of months ago",
    "2023-06-07/2023-06-12": "a few days ago|几天前",
    "2023-06-11/2023-06-14": "in the last three days|最近三天",
    "2022-01-01/2022-12-31": "last year",
    "2023-06-10/2023-06-11": "last weekend|上周末",
    "2022-06-01/2022-08-31": "last summer|去年夏天",
    "2023-12-01/2024-02-29": "this winter",
    "2022-12-31": "12月31日",
    "2022-11-01/2022-11-30": "十一月",
    "2022-05-01/2022-05-31": "去年5月",
    "2022-03-01/2022-03-31": "去年的三月",
    "2023-06-12/2023-06-18": "本周",
    "2023-05-05": "上个月5号",
    "2023-05-25": "二十天前",
    "2022-11-01/2022-12-31": "去年年底",
}


def cases(grouped: dict[str, str]) -> list[tuple[str, str]]:
    """Each saying with the span that it names."""
    return [(said, expected) for expected, sayings in grouped.items() for said in sayings.split("|")]


@pytest.mark.parametrize(("said", "expected"), cases(ABSOLUTE))
def test_an_absolute_time_is_found_whatever_the_present_day(said: str, expected: str) -> None:
    for now in (NOW, NOW + timedelta(days=2000)):
        assert spans(f"What happened {said}?", now) == [expected]
        assert spans(f"我{said}做了什么", now) == [expected]
    assert not time_spans(said, NOW)[0].relative


@pytest.mark.parametrize(("said", "expected"), cases(RELATIVE))
def test_a_relative_time_counts_from_the_present_day(said: str, expected: str) -> None:
    text = f"What happened {said}?" if said.isascii() else f"我{said}做了什么"
    assert spans(text) == [expected]
    assert time_spans(text, NOW)[0].relative


@pytest.mark.parametrize(
    "text",
    """May I ask you something?|we march on Washington|I may 2 times|you may 3, they may 4|version 1.2.3
release 2.10.2023.4|the second option|call 555-1234
010-2023-0507|it costs $2022|for 2000 dollars|in 2000 lines|from 2000 people
10 may be too many|this may be wrong|this may take 2 days|the last may take more|June said hi|April likes August
24/7|1/2 cup|port 2022|the 2020s|3.14|192.168.1.20|I fall often|31/31/2023|2023-02-30|31 June
五月天的歌|第5月|两周一次|每周三开会|一月一次|今天气不好|说明天气|三个月大|周围|7号线|1号服务器|后天性
以前天天跑步|三天前端开发|一天三次|12个月|三年级|星期几|以后天气|目前|电话13912345678|以上月份|一周年|从前|2月30日""".replace(
        "\n", "|"
    ).split("|"),
)
def test_what_only_looks_like_a_time_is_none(text: str) -> None:
    assert spans(text) == []


def test_a_date_that_can_be_read_two_ways_gives_both() -> None:
    assert spans("on 05/07/2023") == ["2023-05-07", "2023-07-05"]
    assert spans("on 05/05/2023") == ["2023-05-05"]


def test_several_times_come_in_order_with_their_words() -> None:
    found = time_spans("去年5月和 yesterday 之间，以及 2021年", NOW)
    assert [(span.text, span.relative) for span in found] == [
        ("去年5月", True),
        ("yesterday", True),
        ("2021年", False),
    ]


def test_february_29_without_a_year_is_the_last_one_there_was() -> None:
    assert spans("on 29 February") == ["2020-02-29"]


def test_times_outside_1900_to_2100_are_left_out() -> None:
    assert spans("100 years ago") == ["1923-01-01/1923-12-31"]
    assert spans("200 years ago") == []
    assert spans("一百年前") == []


PIECES = "31 2023 9999 may March the last ago week Friday before"
_WORDS = st.sampled_from([*"年月五十号上周前天个夏０-/. 7", *PIECES.split()])


@given(st.text() | st.lists(_WORDS, max_size=20).map("".join), st.datetimes())
@example("99 weeks ago", datetime(1, 1, 1))
@example("十十月十十日", datetime(9999, 12, 31))
@example("下个月", datetime(9999, 12, 31))
def test_any_text_at_any_time_is_answered_with_sound_spans(text: str, now: datetime) -> None:
    for span in time_spans(text, now):
        assert date(1900, 1, 1) <= span.start <= span.end <= date(2100, 12, 31)
        assert span.text
        assert span.text in text


@pytest.mark.parametrize("piece", ["a", "1", "may ", "上", "in the ", "五月", " ", "1-", "a few ", "2023", "三天前"])
def test_time_grows_no_faster_than_the_text(piece: str) -> None:
    def seconds(length: int) -> float:
        text = (piece * length)[:length]
        started = time.process_time()
        time_spans(text, NOW)
        return time.process_time() - started

    # Eight times the text takes eight times as long, or 64 times; a busy machine only adds to some of the tries.
    limit = 32 * max(*(seconds(5_000) for _ in range(4)), 0.002)
    assert any(seconds(40_000) < limit for _ in range(4))
