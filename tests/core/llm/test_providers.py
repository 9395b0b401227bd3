"""The real SDKs against stand-ins on loopback: every fault of a provider, counted requests, and the key."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from memory_core.core.config import LLMConfig
from memory_core.core.errors import ModelUnavailable
from memory_core.core.llm.client import (
    PROVIDERS,
    Completion,
    LLMRequest,
    StopReason,
    TokenUsage,
    Turn,
    open_client,
)
from memory_core.core.llm.endpoint import PLACEHOLDER_KEY, Endpoint, RemoteModel, load, retry_after_seconds
from memory_core.core.llm.structured import JSONAdapter
from memory_core.core.memory.operations import ReasoningAction
from memory_core.core.record import RecordInvalid
from tests.core.llm.stand_ins import (
    Recorded,
    Reply,
    Scripted,
    StandIn,
    anthropic_message,
    broken_off,
    dripping,
    failure,
    fall_silent,
    openai_completion,
    raw,
    reset,
)

KEY = "sk-test-0123456789-secret"
ADAPTER = JSONAdapter(ReasoningAction)
OPENAI = load("openai")
TEXT = '{"reasoning": "没有新内容"}'


def request(words: str = "早上好") -> LLMRequest:
    return ADAPTER.format("RULES 规则", [Turn("user", words)], max_tokens=8_192)


class Side:
    """One provider: its client against a stand-in, and its replies."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.waits: list[float] = []
        self.clients: list[RemoteModel] = []

    def client(self, server: StandIn, **settings: Any) -> RemoteModel:
        environment = {f"{self.provider.upper()}_API_KEY": KEY}
        settings = dict[str, Any](environment=environment, sleep=self.waits.append) | settings
        ending = "/v1" if self.provider == "openai" else ""
        made = RemoteModel(self.provider, "model-1", f"{server.url}{ending}", **settings)
        self.clients.append(made)
        return made

    def ask(
        self, *replies: Scripted, timeout_seconds: float = 20.0, **settings: Any
    ) -> tuple[Completion, list[Recorded]]:
        with StandIn(replies) as server:
            return self.client(server, **settings).complete(request(), timeout_seconds), server.requests

    def fail(
        self, *replies: Scripted, timeout_seconds: float = 20.0, **settings: Any
    ) -> tuple[ModelUnavailable, list[Recorded]]:
        with StandIn(replies) as server:
            with pytest.raises(ModelUnavailable) as caught:
                self.client(server, **settings).complete(request(), timeout_seconds)
            return caught.value, server.requests

    def answer(self, text: str = TEXT) -> Reply:
        return anthropic_message(text) if self.provider == "anthropic" else openai_completion(text)


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


def opened(provider: str) -> Iterator[Side]:
    made = Side(provider)
    yield made
    for client in made.clients:
        client.close()


@pytest.fixture(params=["anthropic", "openai"])
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    yield from opened(request.param)


@pytest.fixture
def anthropic() -> Iterator[Side]:
    yield from opened("anthropic")


@pytest.fixture
def openai() -> Iterator[Side]:
    yield from opened("openai")


# Success -------------------------------------------------------------------------------------------------------------


def test_an_answer_of_anthropic_comes_with_its_cost_and_was_asked_with_a_cached_prefix_and_the_schema(
    anthropic: Side,
) -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    completion, (asked,) = anthropic.ask(anthropic_message(TEXT, usage=usage))
    assert (completion.text, completion.stop, completion.model) == (TEXT, StopReason.COMPLETE, "claude-stand-in")
    assert completion.usage == TokenUsage(prompt=123, completion=4, cached=100, requests=1)
    assert asked.path == "/v1/messages"
    (block,) = asked.body["system"]
    assert block["cache_control"] == {"type": "ephemeral"}
    assert block["text"].startswith("RULES 规则")
    assert asked.body["messages"] == [{"role": "user", "content": "早上好"}]
    assert asked.body["output_config"]["format"]["type"] == "json_schema"
    assert asked.body["max_tokens"] == 8_192
    assert not {"temperature", "stream", "tools"} & asked.body.keys()


def test_an_answer_of_openai_comes_with_its_cost_and_was_asked_with_a_strict_schema(openai: Side) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}}
    completion, (asked,) = openai.ask(openai_completion(TEXT, usage=usage))
    assert (completion.text, completion.stop) == (TEXT, StopReason.COMPLETE)
    assert completion.usage == TokenUsage(prompt=50, completion=7, cached=40, requests=1)
    assert asked.path == "/v1/chat/completions"
    assert [message["role"] for message in asked.body["messages"]] == ["system", "user"]
    schema = asked.body["response_format"]["json_schema"]
    assert (schema["strict"], schema["name"]) == (True, "ReasoningAction")
    assert asked.body["max_tokens"] == 8_192
    assert "temperature" not in asked.body


def test_the_static_part_is_the_same_bytes_in_two_conversations(side: Side) -> None:
    with StandIn([side.answer(), side.answer()]) as server:
        client = side.client(server)
        client.complete(request("你好"), 20.0)
        client.complete(request("Good night"), 20.0)
        first, second = (recorded.body for recorded in server.requests)
    for name in ("system", "output_config", "response_format", "max_tokens"):
        assert json.dumps(first.get(name)) == json.dumps(second.get(name))
    if side.provider == "openai":
        assert first["messages"][0] == second["messages"][0]
    assert "write_operations" in json.dumps(first["messages"] if side.provider == "openai" else first["system"])


def test_a_large_answer_needs_no_streaming(anthropic: Side) -> None:
    with StandIn([anthropic.answer()]) as server:
        large = ADAPTER.format("S", [Turn("user", "hi")], max_tokens=64_000)
        assert anthropic.client(server).complete(large, 20.0).text == TEXT


# How answers end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", StopReason.COMPLETE),
        ("stop_sequence", StopReason.COMPLETE),
        ("max_tokens", StopReason.LENGTH),
        ("model_context_window_exceeded", StopReason.LENGTH),
        ("pause_turn", StopReason.LENGTH),
        ("refusal", StopReason.REFUSAL),
        ("something_new", StopReason.COMPLETE),
    ],
)
def test_anthropics_stop_reasons(anthropic: Side, reason: str, stop: StopReason) -> None:
    completion, requests = anthropic.ask(anthropic_message('{"reaso', stop_reason=reason))
    assert (completion.text, completion.stop, len(requests)) == ('{"reaso', stop, 1)


@pytest.mark.parametrize(
    ("reply", "text", "stop"),
    [
        (openai_completion('{"reaso', "length"), '{"reaso', StopReason.LENGTH),
        (openai_completion("", "content_filter"), "", StopReason.REFUSAL),
        (openai_completion(None, message={"refusal": "I cannot."}), "I cannot.", StopReason.REFUSAL),
        (openai_completion(TEXT, message={"reasoning_content": '{"reasoning": "draft"}'}), TEXT, StopReason.COMPLETE),
        (
            openai_completion(
                None,
                "tool_calls",
                message={"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": TEXT}}]},
            ),
            TEXT,
            StopReason.COMPLETE,
        ),
        (openai_completion("", message={"function_call": {"name": "f", "arguments": TEXT}}), TEXT, StopReason.COMPLETE),
        (openai_completion(None), "", StopReason.COMPLETE),
    ],
    ids=["length", "filtered", "refused", "reasoning model", "tool call", "function call", "empty"],
)
def test_how_chat_completions_end(openai: Side, reply: Reply, text: str, stop: StopReason) -> None:
    completion, _ = openai.ask(reply)
    assert (completion.text, completion.stop) == (text, stop)


def test_blocks_that_are_not_text_are_passed_over(anthropic: Side) -> None:
    blocks = [{"type": "thinking", "thinking": "{", "signature": "s"}, {"type": "text", "text": TEXT}]
    assert anthropic.ask(anthropic_message(blocks))[0].text == TEXT
    tool = {"type": "tool_use", "id": "t", "name": "f", "input": {"reasoning": "好"}}
    assert anthropic.ask(anthropic_message([tool]))[0].text == '{"reasoning": "好"}'


# Faults that pass by -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [failure(429), failure(529), failure(500), failure(503), failure(408), failure(409), reset(), broken_off()],
    ids=["429", "529", "500", "503", "408", "409", "reset", "broken off"],
)
def test_a_fault_that_passes_by_is_asked_again(side: Side, fault: Reply) -> None:
    completion, requests = side.ask(fault, fault, side.answer())
    assert completion.text == TEXT
    assert len(requests) == 3
    assert requests[0].body == requests[2].body
    assert len(side.waits) == 2
    assert 0.5 <= side.waits[0] <= 1.0 <= side.waits[1] <= 1.5


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"retry-after": "3"}, 3.0), ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5), ({"retry-after": "0"}, 0.0)],
)
def test_retry_after_is_honoured(side: Side, headers: dict[str, str], seconds: float) -> None:
    _, requests = side.ask(failure(429, headers=headers), side.answer())
    assert (side.waits, len(requests)) == ([seconds], 2)


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


def test_a_wait_beyond_the_deadline_is_not_begun(side: Side) -> None:
    error, requests = side.fail(failure(429, headers={"retry-after": "60"}), side.answer())
    assert (side.waits, len(requests)) == ([], 1)
    assert "60 s" in error.hint


def test_retries_end_with_their_number_and_at_the_endpoints_own_word(side: Side) -> None:
    error, requests = side.fail(*[failure(529, "overloaded")] * 9, retries=2)
    assert len(requests) == 3
    assert "529: overloaded" in error.message
    assert "runebook extract" in error.hint
    _, requests = side.fail(failure(500), side.answer(), retries=0)
    assert len(requests) == 1
    _, requests = side.fail(failure(503, headers={"x-should-retry": "false"}), side.answer())
    assert len(requests) == 1


def test_a_rate_limit_in_tokens_is_waited_for(side: Side) -> None:
    error, _ = side.fail(failure(429, "Too many tokens, please wait before trying again."), retries=0)
    assert error.hint.startswith("Wait")


def test_no_conversation_waits_where_none_was_to_be_extracted(side: Side) -> None:
    asked = replace(request(), purpose="chat")
    for fault in (failure(503), failure(429), reset()):
        with StandIn([fault]) as server, pytest.raises(ModelUnavailable) as caught:
            side.client(server, retries=0).complete(asked, 20.0)
        assert caught.value.hint
        assert "extract" not in caught.value.hint
        assert "conversation" not in caught.value.hint


@pytest.mark.parametrize("fault", [fall_silent(), dripping()], ids=["silent", "dripping"])
def test_the_deadline_holds_whatever_the_connection_does(side: Side, fault: Reply) -> None:
    side.ask(side.answer())  # loads the SDK
    started = time.monotonic()
    error, requests = side.fail(fault, side.answer(), timeout_seconds=0.3)
    assert time.monotonic() - started < 20.0  # the stand-in ends after thirty
    assert len(requests) == 1
    assert "no answer within 0.3 s" in error.message
    assert "llm.deadline_seconds" in error.hint


def test_a_server_that_is_not_there_is_named(side: Side) -> None:
    with StandIn([]) as server:
        pass
    with pytest.raises(ModelUnavailable, match=r"could not be reached") as caught:
        side.client(server, retries=1).complete(request(), 5.0)
    assert server.url in caught.value.message
    assert "llm.base_url" in caught.value.hint
    assert len(side.waits) == 1


def test_a_provider_that_is_not_reached_points_to_the_network(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    client = RemoteModel(side.provider, "m", environment={f"{side.provider.upper()}_API_KEY": KEY}, retries=0)
    side.clients.append(client)
    with pytest.raises(ModelUnavailable, match="could not be reached") as caught:
        client.complete(request(), 20.0)
    assert caught.value.hint.startswith("Check the network and its proxy.")


# Faults that stay ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        raw("<html>Welcome</html>"),
        raw("{half", "application/json"),
        raw("", "application/json"),
        raw("[]", "application/json"),
        raw("null", "application/json"),
        raw("{}", "application/json"),
    ],
    ids=["html", "half", "empty", "array", "null", "object"],
)
def test_a_body_that_is_not_the_api_points_to_the_address(side: Side, body: Reply) -> None:
    error, requests = side.fail(body, side.answer())
    assert len(requests) == 1
    assert "answered 200" in error.message
    assert "llm.base_url" in error.hint


@pytest.mark.parametrize(
    ("reply", "hint"),
    [
        (failure(401, "invalid key"), "_API_KEY"),
        (failure(403, "no access"), "llm.model"),
        (failure(404, "no such model"), "llm.model"),
        (failure(402, "pay"), "balance"),
        (failure(429, "You exceeded your quota", code="insufficient_quota"), "balance"),
        (failure(400, "Your credit balance is too low"), "balance"),
        (failure(400, "prompt is too long: 300000 tokens"), "extraction.prompt_tokens"),
        (failure(413, "too large"), "extraction.prompt_tokens"),
        (failure(400, "max_tokens is too large: 8192"), "llm.max_tokens"),
        (raw("<html>404</html>", status=404), "llm.base_url"),
    ],
    ids=["401", "403", "404", "402", "quota", "credit", "too long", "413", "max_tokens", "html 404"],
)
def test_a_fault_that_stays_is_not_asked_again_and_says_what_to_do(side: Side, reply: Reply, hint: str) -> None:
    error, requests = side.fail(reply, side.answer())
    assert len(requests) == 1
    assert hint in error.hint


def test_gateways_that_put_faults_into_the_body_are_understood(openai: Side) -> None:
    busy = raw('{"error": {"message": "Rate limited upstream", "code": 429}}', "application/json")
    completion, requests = openai.ask(busy, openai.answer())
    assert completion.text == TEXT
    assert len(requests) == 2
    error, _ = openai.fail(raw('{"error": {"message": "No such model", "code": "x"}}', "application/json"))
    assert "No such model" in error.message


# Weaker forms of structured output -----------------------------------------------------------------------------------


def forms(requests: list[Recorded]) -> list[str | None]:
    """How each request asked for JSON; None for plain text."""
    asked = (each.body.get("response_format") or each.body.get("output_config", {}).get("format") for each in requests)
    return [None if form is None else form["type"] for form in asked]


def test_an_endpoint_without_schemas_is_asked_in_a_weaker_form_from_then_on(side: Side) -> None:
    refusals = {
        "anthropic": [failure(400, "output_config.format: The compiled grammar is too large")],
        "openai": [
            failure(400, "response_format.type json_schema is unavailable"),
            failure(422, "json_object is not supported"),
        ],
    }[side.provider]
    with StandIn([*refusals, side.answer(), side.answer()]) as server:
        client = side.client(server, retries=0)
        assert client.complete(request(), 20.0).text == TEXT
        client.complete(request(), 20.0)
        *_, first, second = (recorded.body for recorded in server.requests)
        assert forms(server.requests) == [*["json_schema", "json_object"][: len(refusals)], None, None]
    assert side.waits == []
    system = first["system"][0] if side.provider == "anthropic" else first["messages"][0]
    assert '"write_operations"?' in json.dumps(system).replace('\\"', '"')
    assert system == (second["system"][0] if side.provider == "anthropic" else second["messages"][0])


def test_a_form_that_was_asked_for_is_neither_weakened_nor_strengthened(side: Side) -> None:
    error, requests = side.fail(failure(400, "unknown response_format / output_config"), structure="json_schema")
    assert len(requests) == 1
    assert "llm.structure" in error.hint
    known = "json_object" if side.provider == "openai" else None
    for structure, form in (("json_object", known), ("text", None)):
        assert forms(side.ask(side.answer(), structure=structure)[1]) == [form]


def test_a_temperature_that_is_refused_is_left_out_from_then_on(side: Side) -> None:
    warm = LLMRequest("S", (Turn("user", "hi"),), {}, "", 100, temperature=0.7)
    with StandIn([failure(400, "temperature is not supported"), side.answer(), side.answer()]) as server:
        client = side.client(server)
        client.complete(warm, 20.0)
        client.complete(warm, 20.0)
        assert [recorded.body.get("temperature") for recorded in server.requests] == [0.7, None, None]
        assert forms(server.requests) == [None] * 3


def test_the_other_name_of_the_token_limit_is_learnt_and_both_are_tried_once(openai: Side) -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    with StandIn([failure(400, words), openai.answer(), openai.answer()]) as server:
        client = openai.client(server)
        client.complete(request(), 20.0)
        client.complete(request(), 20.0)
        limits = [sorted(key for key in recorded.body if key.startswith("max_")) for recorded in server.requests]
    assert limits == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]
    _, requests = openai.fail(*[failure(400, "unknown parameter max_tokens / max_completion_tokens")] * 9)
    assert len(requests) == 2


# The key -------------------------------------------------------------------------------------------------------------


def test_the_key_is_sent_and_never_shown(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    _, (asked,) = side.ask(side.answer())
    assert KEY in json.dumps(dict(asked.headers))
    told = []
    for reply in (failure(401, f"Incorrect API key provided: {KEY}"), raw(f"<p>{KEY}</p>", status=400), reset()):
        error, _ = side.fail(reply, retries=0)
        assert error.__cause__ is None
        assert error.__suppress_context__
        told += [str(error), repr(error), error.hint]
    told += [caplog.text, repr(side.clients), repr(Endpoint.open(OPENAI, "m", "", {"OPENAI_API_KEY": KEY}))]
    assert len(caplog.records) > 10
    assert not [text for text in told if KEY in text]


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_missing_key_is_named(provider: str) -> None:
    name = f"{provider.upper()}_API_KEY"
    other = {"ANTHROPIC_AUTH_TOKEN": "t", "OPENAI_ADMIN_KEY": "t", name: "  "}
    with pytest.raises(ModelUnavailable, match=f"{name} is not set") as caught:
        RemoteModel(provider, "m", environment=other).complete(request(), 5.0)
    assert f"Set {name}" in caught.value.hint


def test_a_server_of_ones_own_needs_no_key_and_may_be_named_by_the_environment(side: Side) -> None:
    with StandIn([side.answer()]) as server:
        ending = "/v1" if side.provider == "openai" else ""
        environment = {f"{side.provider.upper()}_BASE_URL": f"{server.url}{ending}"}
        client = RemoteModel(side.provider, "m", environment=environment)
        side.clients.append(client)
        assert client.complete(request(), 20.0).text == TEXT
    assert PLACEHOLDER_KEY in json.dumps(dict(server.requests[0].headers))


def test_loopback_is_reached_past_a_proxy(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert side.ask(side.answer(), retries=0)[0].text == TEXT


def test_a_malformed_key_or_address_is_refused_without_showing_it() -> None:
    for key in ("two words", "ключ", "line\nbreak"):
        with pytest.raises(ModelUnavailable) as caught:
            Endpoint.open(OPENAI, "m", "", {"OPENAI_API_KEY": key})
        assert key not in str(caught.value)
    for address in ("127.0.0.1:11434", "ftp://host", "http://", "http://[::1", "http://host:port"):
        with pytest.raises(ModelUnavailable, match="URL"):
            Endpoint.open(OPENAI, "m", address, {})


def test_an_address_is_shown_without_its_password() -> None:
    endpoint = Endpoint.open(OPENAI, "m", "http://user:hunter2@host:8000/v1", {})
    assert endpoint.where == "http://host:8000/v1"
    assert not endpoint.is_loopback
    assert not endpoint.is_own
    assert Endpoint.open(OPENAI, "m", "https://eu.api.openai.com/v1", {"OPENAI_API_KEY": "k"}).is_own
    assert Endpoint.open(load("anthropic"), "m", "", {"ANTHROPIC_API_KEY": "k"}).is_own
    assert Endpoint.open(OPENAI, "m", "http://[::1]:1/v1", {}).is_loopback


# From settings -------------------------------------------------------------------------------------------------------


def configured(provider: str, **settings: Any) -> LLMConfig:
    return LLMConfig.model_validate({"provider": provider, **settings})


def answer_of(settings: LLMConfig) -> str:
    client: Any = open_client(settings)
    with closing(client):
        return str(client.complete(request(), 20.0).text)


def test_settings_name_the_provider_its_model_and_its_form() -> None:
    assert open_client(configured("none")) is None
    assert open_client(configured("sampling")) is None
    for provider in PROVIDERS:
        with pytest.raises(ModelUnavailable, match=r"llm\.model"):
            open_client(configured(provider, model=" "))
    with pytest.raises(RecordInvalid, match="none, anthropic, openai, command, sampling"):
        configured("mistral")
    with StandIn([openai_completion(TEXT)]) as server:
        model = configured("openai", model="m", base_url=f"{server.url}/v1", structure="json_object")
        assert answer_of(model) == TEXT
        assert forms(server.requests) == ["json_object"]


def test_a_provider_is_a_module_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("another_provider")
    module.PROVIDER = replace(OPENAI, name="another", own_hosts=(".another.example",))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(PROVIDERS, "another", (module.__name__, "another"))
    with StandIn([openai_completion(TEXT)]) as server:
        monkeypatch.setenv("ANOTHER_API_KEY", KEY)
        monkeypatch.setenv("ANOTHER_BASE_URL", server.url)
        assert answer_of(configured("another", model="m")) == TEXT
    assert KEY in json.dumps(dict(server.requests[0].headers))


@pytest.mark.parametrize(("provider", "install"), [("anthropic", "anthropic"), ("openai", "openai")])
def test_a_missing_package_says_how_to_install_it(provider: str, install: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, PROVIDERS[provider][0], raising=False)
    monkeypatch.setitem(sys.modules, provider, None)
    with pytest.raises(ModelUnavailable) as caught:
        RemoteModel(provider, "m", environment={f"{provider.upper()}_API_KEY": KEY}).complete(request(), 5.0)
    assert install in caught.value.hint
