"""Tokens against real FTS5: what is stored is found again, and no input breaks a query."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.core.index.tokenizer import (
    date_words,
    exact_terms,
    mentioned,
    phrase_operand,
    query_terms,
    says_something,
)
from memory_core.core.text.analysis import index_tokens

TABLE = "CREATE VIRTUAL TABLE words USING fts5(own, tokenize = 'porter unicode61 remove_diacritics 2')"
DOCUMENTS = {
    1: "支付系统在上线前做了压力测试",
    2: "The gateway logs ERR_CONN_RESET_42 when the peer resets",
    3: "Call `foo.bar()` before closing; see src/app/main.py",
    4: "Write to ana.lee+work@example.co.uk about v1.2.3",
    5: "小明喜欢吃芒果冰淇淋",
    6: "東京タワーの写真を撮りました",
    7: "안녕하세요 반갑습니다",
    8: "Melanie was painting a sunrise over the café lake",
    9: "2023年5月8日 去动物园看了大象",
    10: "用Python写脚本，重启服务",
    11: "日志在 connection reset 之后停止，原因在磁盘",
}

Search = Callable[[str], list[int]]


def _expression(query: str) -> str:
    return " OR ".join(query_terms(query))


@contextmanager
def indexed(documents: dict[int, str]) -> Iterator[Search]:
    """A search of documents: from an expression to those that match, the best first."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(TABLE)
        rows = [(identifier, index_tokens(text)) for identifier, text in documents.items()]
        connection.executemany("INSERT INTO words(rowid, own) VALUES (?, ?)", rows)
        sql = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY bm25(words)"
        yield lambda expression: [row[0] for row in connection.execute(sql, (expression,))]


def matches(document: str, expression: str) -> bool:
    with indexed({1: document}) as run:
        return run(expression) == [1]


@pytest.fixture(scope="module")
def search() -> Iterator[Search]:
    with indexed(DOCUMENTS) as run:
        yield lambda query: run(_expression(query)) if query_terms(query) else []


QUESTIONS = {
    1: "支付系统什么时候上线？|压力测试",
    2: "ERR_CONN_RESET_42|err_conn_reset_42 是什么意思",
    3: "what does foo.bar() do|src/app/main.py",
    4: "ana.lee+work@example.co.uk|what changed in V1.2.3?",
    5: "谁喜欢芒果",
    6: "東京タワー|ﾀﾜｰ",
    7: "반갑습니다",
    8: "What did Melanie paint?|CAFE|ＳＵＮＲＩＳＥ",
    9: "5月8日去了哪里|动物园的大象",
    10: "Python脚本",
}


@pytest.mark.parametrize(
    ("query", "expected"), [(query, expected) for expected, asked in QUESTIONS.items() for query in asked.split("|")]
)
def test_question_finds_its_document_first(search: Search, query: str, expected: int) -> None:
    assert search(query)[:1] == [expected]


@pytest.mark.parametrize("character", list("支付系统上线前做了压力测试"))
def test_every_single_character_finds_the_text_that_holds_it(search: Search, character: str) -> None:
    assert 1 in search(character)


def test_single_character_at_the_end_of_a_longer_query_finds_its_document(search: Search) -> None:
    assert set(search("Python 盘")) == {10, 11}


def test_every_two_character_word_is_found() -> None:
    text = "重构支付模块时先补测试再改接口"
    for left, right in pairwise(text):
        assert matches(text, _expression(left + right)), left + right


@pytest.mark.parametrize(
    ("query", "phrase"),
    [
        ('where is "connection reset" logged', '"connection reset"'),
        ("日志里的“连接重置”", '"连接 接重 重置"'),
        ("《三体》好看吗", '"三体"'),
        ("ERR_CONN_RESET_42", '"err conn reset 42"'),
        ("第3章", '"3 章"*'),
    ],
)
def test_phrases_stay_together(query: str, phrase: str) -> None:
    assert phrase in query_terms(query)


def test_quoted_phrase_matches_inside_longer_text() -> None:
    documents = {
        "系统在上": "支付系统在上线",
        "系统在": "系统在",
        "用Python写": "我用Python写脚本",
        "用Python": "用Python吧",
    }
    for content, document in documents.items():
        phrase = query_terms(f"“{content}”")[0]
        assert " " in phrase
        assert matches(document, phrase)


def test_stop_words_leave_the_question() -> None:
    terms = query_terms("What did they do about the kitchen? I don't know Ana's plan")
    assert terms == ('"kitchen"', '"know"', '"ana"', '"plan"')
    assert query_terms("我的密码是什么") == ('"密码"', '"码是"')


@pytest.mark.parametrize("query", ["what is it", "的", "什么", "我的"])
def test_stop_words_remain_when_nothing_else_does(query: str) -> None:
    assert query_terms(query)


@pytest.mark.parametrize("word", ["会议", "地址", "和平", "不锈钢", "可乐"])
def test_content_words_with_a_grammar_character_remain(word: str) -> None:
    assert f'"{word[:2]}"' in query_terms(f"昨天买东西{word}")


@pytest.mark.parametrize("query", ["", "   ", "***", "☺️🎉", "。，！", '""', "\x00", "\ud800", "()^-:"])
def test_nothing_to_look_for_gives_no_expression(query: str) -> None:
    assert _expression(query) == ""


def test_terms_are_distinct_and_capped_keeping_the_specific() -> None:
    filler = " ".join(f"{chr(97 + i % 26)}{chr(97 + i // 26)}x" for i in range(200))
    terms = query_terms(f"{filler} ERR_CONN_RESET_42 kubernetes Kubernetes 支付", limit=8)
    assert len(terms) == len(set(terms)) == 8
    assert {'"err conn reset 42"', '"kubernetes"', '"支付"'} <= set(terms)


def test_newest_of_many_equal_terms_are_kept() -> None:
    terms = query_terms("".join(chr(0x4E00 + i) for i in range(500)), limit=4)
    assert terms[-1] == f'"{chr(0x4E00 + 498)}{chr(0x4E00 + 499)}"'


def test_date_is_found_in_english_and_chinese() -> None:
    document = date_words(date(2023, 5, 8)) + " 开会"
    for query in ("in May", "2023-05-08", "5月8日", "2023年5月", "2023"):
        assert matches(document, _expression(query))
    assert not matches(document, '"6 月"*')


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("What did Ana do?", "ana", True),
        ("bananas", "ana", False),
        ("Ana's plan", "Ana", True),
        ("ana_1", "ana", False),
        ("小明的生日是哪天", "小明", True),
        ("Ana喜欢什么", "Ana", True),
        ("小红", "小明", False),
        ("anything", "  ", False),
        ("a(b", "(", False),
    ],
)
def test_mention_is_a_whole_word(text: str, name: str, expected: bool) -> None:
    assert (name in mentioned(text, [name])) is expected


def test_each_name_that_is_mentioned_is_told() -> None:
    assert mentioned("Ana asked 小明 about bananas", {"ana", "小明", "Bob", "banana", " "}) == {"ana", "小明"}


ANY_TEXT = st.text(
    alphabet=st.one_of(
        st.characters(),
        st.sampled_from("支付的了吗\"'()*:^-+{}NEAR AND OR NOT_.@/\\\x00\ud800\udfff“”「」《》ーがㄅ안é̈"),
    ),
    max_size=60,
)


@pytest.mark.parametrize("noise", ["\x00", "\ud800", "\ue000"])
def test_unstorable_characters_part_words_and_go(noise: str) -> None:
    assert index_tokens(f"red{noise}kite支{noise}付").split() == ["red", "kite", "支", "付"]
    assert query_terms(f"red{noise}kite") == ('"red"', '"kite"')


@given(text=ANY_TEXT)
@settings(max_examples=400, deadline=None)
def test_any_text_gives_valid_match_syntax(text: str) -> None:
    mentioned(text, [text])
    expression = _expression(text)
    with indexed({1: text}) as run:
        for operand in [*query_terms(text), expression] if expression else []:
            run(operand)


@given(text=st.text(alphabet=st.sampled_from("支付系统上线 ab7.-_，x"), min_size=1, max_size=30))
@settings(max_examples=200, deadline=None)
def test_text_with_a_word_finds_itself(text: str) -> None:
    expression = _expression(text)
    assert bool(expression) == any(char.isalnum() for char in text)
    assert not expression or matches(text, expression)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what raised ERR_CONN_RESET_42 yesterday", ('"err conn reset 42"',)),
        ("who said “not today”?", ('"not today"',)),
        ("谁说过「压力测试」", ('"压力 力测 测试"',)),
        ("open src/app/main.py, please", ('"src app main py"',)),
        ("is k8s at v1.2.3?", ('"k8s"', '"v1 2 3"')),
        ('find "kubernetes"', ('"kubernetes"',)),
        ("a well-known mother's self-care and/or rest at 5pm on the 1st", ()),
        ("哪天去的大阪", ()),
        ("room 42 and code 4711", ('"4711"',)),
        ("in 2024 or 1998", ()),
        ("see a.b and C++ today", ()),
        ("see a.b1 today", ('"a b1"',)),
        ("端口8080不通，工单号为 AB-17", ('"8080"', '"ab 17"')),
    ],
)
def test_only_phrases_and_identifiers_are_exact(query: str, expected: tuple[str, ...]) -> None:
    assert exact_terms(query) == expected


def test_traditional_and_simplified_characters_find_each_other() -> None:
    assert index_tokens("臺灣的資料庫") == index_tokens("台湾的资料库")
    assert query_terms("資料庫在哪裡") == query_terms("资料库在哪里")


@pytest.mark.parametrize("mark", ["“", "「", "『", "《", "²", "1"])
def test_marks_that_never_close_take_no_quadratic_time(mark: str) -> None:
    took: list[float] = []
    for _ in range(3):
        started = time.thread_time()
        query_terms(mark * 8_000)
        exact_terms(mark * 8_000)
        took.append(time.thread_time() - started)
    assert min(took) < 0.2  # about 0.02; a second where each mark looks for its end


def test_inner_quotation_of_nested_ones_is_the_phrase() -> None:
    assert '"blue kite"' in exact_terms("he wrote “she said “blue kite” and left")


def test_of_many_exact_terms_the_last_ones_stay() -> None:
    assert exact_terms(" ".join(f"id_{number}" for number in range(20)), limit=2) == ('"id 18"', '"id 19"')


def test_a_question_about_what_happened_alone_says_nothing() -> None:
    for nothing in ("What happened?", "发生了什么事？", "What did we do then", "?!", ""):
        assert not says_something(nothing)
    for something in ("What happened to the kettle?", "水壶怎么了"):
        assert says_something(something)


def test_a_phrase_asks_for_few_of_its_words_however_long_it_is() -> None:
    chain = ".".join(f"part{number}" for number in range(200))
    for terms in (query_terms(chain), exact_terms(chain), (phrase_operand(chain.replace(".", " ")),)):
        assert max(term.count(" ") for term in terms) == 15
    (quoted, *_) = query_terms('"' + chain.replace(".", " ") + '"')
    assert quoted == '"' + " ".join(f"part{number}" for number in range(16)) + '"'


def test_of_many_phrases_those_at_the_end_are_asked_for_as_phrases() -> None:
    asked = query_terms(" ".join(f"{'left' * 3}{number}.right{number}.more{number}" for number in range(100)), 1_000)
    phrases = [term for term in asked if " " in term]
    assert len(phrases) == 42
    assert phrases[-1] == '"leftleftleft99 right99 more99"'
    assert '"right0"' in asked
