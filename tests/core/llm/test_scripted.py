"""The shipped fake, and the driver that both it and real clients serve."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from memory_core.core.errors import ModelRefused, ModelUnavailable
from memory_core.core.llm.client import Completion, LLMRequest, ScriptedLLM, StopReason, Turn, drive
from memory_core.core.llm.endpoint import retry_after_seconds


def request(words: str = "hi") -> LLMRequest:
    return LLMRequest("S", (Turn("user", words),), {"type": "object"}, "answer", 100)


def test_answers_come_in_order_and_requests_are_kept() -> None:
    cut = Completion("{", StopReason.LENGTH)
    llm = ScriptedLLM(["一", cut, lambda asked: asked.turns[-1].text.upper(), lambda _: Completion("四")])
    given = [llm.complete(request(word), 1.0) for word in ("a", "b", "c", "d")]
    assert [completion.text for completion in given] == ["一", "{", "C", "四"]
    assert given[1] is cut
    assert given[0].usage.requests == 1
    assert [asked.turns[0].text for asked in llm.requests] == ["a", "b", "c", "d"]


def test_errors_of_the_script_are_raised() -> None:
    refused = ModelRefused("no.", hint="Ask for something else.")
    llm = ScriptedLLM([refused, lambda _: refused])
    for _ in range(2):
        with pytest.raises(ModelRefused):
            llm.complete(request(), 1.0)
    assert len(llm.requests) == 2


def test_an_exhausted_script_says_so() -> None:
    llm = ScriptedLLM([])
    with pytest.raises(ModelUnavailable, match="no answer to request 1"):
        llm.complete(request(), 1.0)


def test_threads_share_a_script() -> None:
    llm = ScriptedLLM(str(number) for number in range(200))
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: llm.complete(request(), 1.0).text, range(200)))
    assert sorted(map(int, texts)) == list(range(200))


def test_the_driver_sends_answers_and_throws_failures_into_the_loop() -> None:
    def loop() -> Generator[LLMRequest, Completion, str]:
        first = yield request("one")
        try:
            yield request("two")
        except ModelUnavailable as error:
            return f"{first.text}, then {error.message}"
        return "no failure"

    llm = ScriptedLLM(["好", ModelUnavailable("down.", hint="Wait.")])
    assert drive(loop(), llm, 5.0) == "好, then down."


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "nan?", "retry-after": "2"}, 2.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
    ],
)
def test_how_long_an_endpoint_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers, now=60.0) == seconds
