"""Loops that ask the client's model, in both eras, over our stdio wire, streamable HTTP and SSE.

Run as a program it is the probe: ``test_sampling.py EVIDENCE [PORT]`` serves one tool that runs a small loop, on stdio
or on both HTTP transports, and writes to EVIDENCE how each loop ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ErrorData,
    ImageContent,
    InputRequiredResult,
    TextContent,
)

from memory_core.core.errors import ModelFailed, RunebookError
from memory_core.core.llm.client import Completion, LLMRequest, StopReason, Turn
from server.http.authentication import Bearer, TokenUser
from server.protocol import sampling
from server.protocol.sampling import ROUNDS_LIMIT, Sampling, offers_sampling
from server.protocol.stdio_pipes import standard_pipes
from server.protocol.stdio_transport import scrub_results, serve_pipe
from tests.fork_server import starter
from tests.server.conftest import Era, free_port, wait_until_served
from tests.waiting import PATIENCE_SECONDS, soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Answer = CreateMessageResult | CreateMessageResultWithTools | ErrorData
Model = Callable[[Any, CreateMessageRequestParams], Awaitable[Answer]]
Loop = Generator[LLMRequest, Completion, dict[str, Any]]
SCHEMA = {"type": "object", "properties": {"记忆": {"type": "string"}}}

# The probe


def extraction(name: str, questions: int, evidence: Path) -> Loop:
    """Ask ``questions`` times; what became of it is a line of ``evidence``."""

    def note(ending: str) -> None:
        with evidence.open("a", encoding="utf-8", newline="\n") as target:
            target.write(f"{name} {ending}\n")

    answers = []
    note("began")
    try:
        for number in range(questions):
            said = Turn("user", f"{name} 问题 {number} \ud800")
            completion = yield LLMRequest("You remember. 你负责记忆。", (said,), SCHEMA, "memory", 64)
            answers.append([completion.text, completion.stop, completion.model])
    except ModelFailed as error:
        note("queued")
        return {"status": "queued", "reason": f"{type(error).__name__}: {error}", "answers": answers}
    except GeneratorExit:
        note("closed")
        raise
    note("committed")
    return {"status": "committed", "answers": answers}


def build_probe(evidence: Path) -> MCPServer[None]:
    running: Sampling[dict[str, Any]] = Sampling()
    users: list[None] = []

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        users.append(None)
        yield
        users.pop()
        if not users:  # it is entered for every SSE connection
            await anyio.to_thread.run_sync(running.close)

    server = MCPServer("probe", version="1", lifespan=lifespan, middleware=[scrub_results], log_level="WARNING")

    @server.tool(structured_output=False)
    def extract(name: str, questions: int, deadline: float, ctx: Context[Any, Any]) -> Any:
        if not offers_sampling(ctx):
            return "no sampling"
        try:
            outcome = running.run(lambda: extraction(name, questions, evidence), ctx, deadline)
        except RunebookError as error:
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
        return outcome if isinstance(outcome, InputRequiredResult) else json.dumps(outcome, ensure_ascii=False)

    return server


def serve_probe(evidence: Path, port: str | None) -> None:
    server = build_probe(evidence)
    if port is None:
        anyio.run(serve_pipe, server, standard_pipes())
        return
    from server.http.http_server import serve

    serve(server, "127.0.0.1", int(port))


# The client


class Probe:
    """A running probe: where to reach it, one client that stays, and what its loops left behind."""

    def __init__(self, folder: Path, portal: BlockingPortal, url: str | None) -> None:
        self.evidence = folder / "evidence"
        self.errors = folder / "stderr"
        self.portal = portal
        self.url = url
        self._model: Model | None = None
        self._lasting = ExitStack()
        self._client: Client | None = None

    @contextmanager
    def client(self, era: Era, model: Model | None) -> Iterator[Client]:
        """A client whose model is ``model``; without one, a client that does not offer sampling."""
        if model is None:
            with ExitStack() as stack:
                yield self._connect(era, stack, None)
            return
        if self._client is None:
            self._client = self._connect(era, self._lasting, self._ask_model)
        self._model = model
        yield self._client

    def close(self) -> None:
        self._lasting.close()

    def _connect(self, era: Era, stack: ExitStack, callback: Any) -> Client:
        if self.url is None:
            log = stack.enter_context(self.errors.open("a", encoding="utf-8", newline="\n"))
            command, *words = probe_command(self.evidence)
            program = StdioServerParameters(command=command, args=words, env=dict(os.environ))
            server: Any = stdio_client(program, errlog=log)
        else:
            server = sse_client(self.url) if self.url.endswith("/sse") else self.url
        client = Client(server, mode=era, sampling_callback=callback)
        return stack.enter_context(self.portal.wrap_async_context_manager(client))

    async def _ask_model(self, context: Any, params: CreateMessageRequestParams) -> Answer:
        assert self._model is not None
        return await self._model(context, params)

    def started(self, client: Client, name: str, questions: int, deadline: float = PATIENCE_SECONDS) -> Future[Any]:
        sent = {"name": name, "questions": questions, "deadline": deadline}
        return self.portal.start_task_soon(client.call_tool, "extract", sent)

    def extract(self, client: Client, name: str, questions: int, deadline: float = PATIENCE_SECONDS) -> Any:
        answer = self.started(client, name, questions, deadline).result(PATIENCE_SECONDS)
        text = answer.content[0].text
        return json.loads(text) if text.startswith("{") else text

    def endings(self) -> list[str]:
        return self.evidence.read_text(encoding="utf-8").splitlines() if self.evidence.exists() else []

    def wait_for(self, ending: str) -> None:
        assert soon(lambda: ending in self.endings()), (ending, self.endings())

    def assert_quiet(self) -> None:
        """Nothing was logged: no crash, no deprecation warning of the SDK's."""
        assert self.errors.read_text(encoding="utf-8") == ""


def probe_command(evidence: Path, *port: str) -> list[str]:
    run = f"import runpy, warnings; warnings.simplefilter('default'); runpy.run_path({__file__!r}, run_name='__main__')"
    return starter().script_command(run, str(evidence), *port)


@pytest.fixture(scope="module")
def http_probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    folder = tmp_path_factory.mktemp("probe")
    port = free_port()
    with (folder / "stderr").open("wb") as errors:
        command = probe_command(folder / "evidence", str(port))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors)
    try:
        wait_until_served(port, process, folder / "stderr")
        yield folder, port
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


ROUTES = [(transport, era) for transport in ("stdio", "mcp", "sse") for era in ("legacy", "auto")]


@pytest.fixture(scope="module", params=ROUTES, ids=[f"{transport}-{era}" for transport, era in ROUTES])
def route(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    portal: BlockingPortal,
    http_probe: tuple[Path, int],
) -> Iterator[tuple[Probe, Era]]:
    transport, era = request.param
    if transport == "stdio":
        probe = Probe(tmp_path_factory.mktemp("stdio"), portal, None)
    else:
        folder, port = http_probe
        probe = Probe(folder, portal, f"http://127.0.0.1:{port}/{transport}")
    yield probe, era
    probe.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A word that only this test's loops carry."""
    return f"会话{abs(hash(request.node.name)):x}"


def asked(params: CreateMessageRequestParams) -> str:
    (message,) = params.messages
    assert isinstance(message.content, TextContent)
    return message.content.text


def said(text: str, stop: str | None = "endTurn") -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant", content=TextContent(type="text", text=text), model="probe-model", stop_reason=stop
    )


async def echoing(_: Any, params: CreateMessageRequestParams) -> Answer:
    return said(f"answer to {asked(params)}")


class Hesitant:
    """A model that tells when it is asked, and answers when it is let."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    async def __call__(self, _: Any, params: CreateMessageRequestParams) -> Answer:
        self.asked.set()
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not self.may_answer.is_set():
                await anyio.sleep(0.01)
        return said(f"late answer to {asked(params)}")


# What a loop gets


def test_answers_arrive_in_order(route: tuple[Probe, Era], name: str) -> None:
    probe, era = route
    with probe.client(era, echoing) as client:
        assert client.protocol_version == ("2026-07-28" if era == "auto" else "2025-11-25")
        for questions in (0, 1, 3):
            outcome = probe.extract(client, f"{name}{questions}", questions)
            expected = [
                [f"answer to {name}{questions} 问题 {number} \ufffd", "complete", "probe-model"]
                for number in range(questions)
            ]
            assert outcome == {"status": "committed", "answers": expected}
            assert probe.endings().count(f"{name}{questions} began") == 1
    probe.assert_quiet()


def test_request_carries_rules_schema_and_limit(route: tuple[Probe, Era], name: str) -> None:
    probe, era = route
    seen: list[CreateMessageRequestParams] = []

    async def model(_: Any, params: CreateMessageRequestParams) -> Answer:
        seen.append(params)
        return said("{}")

    with probe.client(era, model) as client:
        probe.extract(client, name, 1)
    (params,) = seen
    assert params.system_prompt is not None
    assert params.system_prompt.startswith("You remember. 你负责记忆。")
    assert '"记忆"?: string' in params.system_prompt
    assert (params.max_tokens, params.messages[0].role) == (64, "user")


def test_client_without_sampling_is_not_asked(route: tuple[Probe, Era], name: str) -> None:
    probe, era = route
    with probe.client(era, None) as client:
        assert probe.extract(client, name, 1) == "no sampling"


@pytest.mark.parametrize(
    ("word", "stop"),
    [("maxTokens", StopReason.LENGTH), ("length", StopReason.LENGTH), ("refusal", StopReason.REFUSAL),
     ("stopSequence", StopReason.COMPLETE), (None, StopReason.COMPLETE)],
)  # fmt: skip
def test_stop_reason_is_passed_on(route: tuple[Probe, Era], word: str | None, stop: StopReason) -> None:
    probe, era = route

    async def model(_: Any, params: CreateMessageRequestParams) -> Answer:
        return said(asked(params), word)

    with probe.client(era, model) as client:
        (answer,) = probe.extract(client, "停", 1)["answers"]
    assert answer[1] == stop


def test_blocks_of_text_are_joined_and_an_image_is_unusable(route: tuple[Probe, Era], name: str) -> None:
    probe, era = route

    async def model(_: Any, params: CreateMessageRequestParams) -> Answer:
        if "问题 0" in asked(params):
            blocks = [TextContent(type="text", text=part) for part in ("半", "句")]
            return CreateMessageResultWithTools(role="assistant", content=[*blocks], model="m")
        return CreateMessageResult(
            role="assistant", content=ImageContent(type="image", data="AA==", mime_type="image/png"), model="m"
        )

    with probe.client(era, model) as client:
        outcome = probe.extract(client, name, 2)
    assert outcome["answers"] == [["半句", "complete", "m"]]
    assert outcome["status"] == "queued"
    assert outcome["reason"].startswith("AnswerUnusable: ")
    probe.assert_quiet()


# Clients that fail


def test_declining_client_leaves_the_conversation_queued(route: tuple[Probe, Era], name: str) -> None:
    """In the modern era a client that declines never calls again: the deadline ends the loop."""
    probe, era = route

    async def model(_: Any, _params: CreateMessageRequestParams) -> Answer:
        return ErrorData(code=-1, message="The user said no. 用户拒绝")

    with probe.client(era, model) as client:
        if era == "legacy":
            outcome = probe.extract(client, name, 2)
            assert "用户拒绝" in outcome["reason"]
            assert outcome["reason"].startswith("ModelUnavailable: ")
        else:
            with pytest.raises(MCPError, match="用户拒绝"):
                probe.extract(client, name, 2, deadline=0.5)
        probe.wait_for(f"{name} queued")
    probe.assert_quiet()


def test_raising_client_leaves_the_conversation_queued(route: tuple[Probe, Era], name: str) -> None:
    probe, era = route

    async def model(_: Any, _params: CreateMessageRequestParams) -> Answer:
        raise ValueError("the host's model broke")

    with probe.client(era, model) as client:
        if era == "legacy":
            assert probe.extract(client, name, 2)["reason"].startswith("ModelUnavailable: ")
        else:
            with pytest.raises(ExceptionGroup):
                probe.extract(client, name, 2, deadline=0.5)
        probe.wait_for(f"{name} queued")
    probe.assert_quiet()


def test_answer_after_the_deadline_finds_the_conversation_queued(route: tuple[Probe, Era], name: str) -> None:
    probe, era = route
    model = Hesitant()
    with probe.client(era, model) as client:
        call = probe.started(client, name, 2, deadline=0.5)
        assert model.asked.wait(PATIENCE_SECONDS)
        probe.wait_for(f"{name} queued")
        model.may_answer.set()
        (block,) = call.result(PATIENCE_SECONDS).content
        outcome = json.loads(block.text)
    assert outcome["status"] == "queued"
    assert "did not answer in time" in outcome["reason"]
    assert outcome["answers"] == []
    probe.assert_quiet()


def test_cancelled_call_closes_the_loop(route: tuple[Probe, Era], name: str) -> None:
    """Between two rounds of the modern era the server cannot hear of it, and the deadline ends the loop."""
    probe, era = route
    model = Hesitant()
    with probe.client(era, model) as client:
        call = probe.started(client, name, 2, deadline=PATIENCE_SECONDS if era == "legacy" else 0.5)
        assert model.asked.wait(PATIENCE_SECONDS)
        call.cancel()
        probe.wait_for(f"{name} {'closed' if era == 'legacy' else 'queued'}")
        assert probe.extract(client, "afterwards", 0)["status"] == "committed"
    probe.assert_quiet()


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
def test_end_of_input_while_the_model_thinks_closes_the_loop(tmp_path: Path, era: str) -> None:
    probe = Probe(tmp_path, None, None)  # type: ignore[arg-type]  # no SDK client
    call: dict[str, Any] = {"name": "extract", "arguments": {"name": "断线", "questions": 2, "deadline": 60}}
    lines: list[dict[str, Any]] = [{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}]
    if era == "2025-11-25":
        hello = {"protocolVersion": era, "capabilities": {"sampling": {}}, "clientInfo": {"name": "t", "version": "1"}}
        lines.insert(0, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        lines.insert(1, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    else:
        prefix = "io.modelcontextprotocol"
        call["_meta"] = {f"{prefix}/protocolVersion": era, f"{prefix}/clientCapabilities": {"sampling": {}}}
    with (
        probe.errors.open("wb") as errors,
        subprocess.Popen(
            probe_command(probe.evidence), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines(json.dumps(line).encode() + b"\n" for line in lines)
        process.stdin.flush()
        while b"sampling/createMessage" not in (line := process.stdout.readline()):
            assert line
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert probe.endings() == ["断线 began", "断线 closed"]
    probe.assert_quiet()


def test_question_rides_the_stream_of_the_call_that_asks(http_probe: tuple[Path, int]) -> None:
    """Hosts need not keep a stream open beside it."""
    folder, port = http_probe
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def post(message: dict[str, Any]) -> Any:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", body, headers)
        return urllib.request.urlopen(request, timeout=PATIENCE_SECONDS)

    hello = {
        "protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": {"name": "t", "version": "1"}
    }  # fmt: skip
    with post({"id": 1, "method": "initialize", "params": hello}) as answer:
        answer.read()
        headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
    post({"method": "notifications/initialized"}).close()
    call = {"name": "extract", "arguments": {"name": "流", "questions": 1, "deadline": 0.5}}
    with post({"id": 2, "method": "tools/call", "params": call}) as stream:
        sent = [json.loads(line[6:]) for line in stream if line.startswith(b"data: {")]
    assert [message.get("method") for message in sent] == ["sampling/createMessage", "notifications/cancelled", None]
    assert "流 queued" in (folder / "evidence").read_text(encoding="utf-8")


# Several at once


def test_concurrent_loops_do_not_mix(route: tuple[Probe, Era], name: str) -> None:
    probe, era = route
    together = threading.Barrier(2)

    async def model(_: Any, params: CreateMessageRequestParams) -> Answer:
        await anyio.to_thread.run_sync(together.wait, PATIENCE_SECONDS)
        return said(asked(params))

    with probe.client(era, model) as client:
        calls = {tag: probe.started(client, f"{name}{tag}", 3) for tag in ("甲", "b")}
        for tag, call in calls.items():
            answers = json.loads(call.result(PATIENCE_SECONDS).content[0].text)["answers"]
            assert [text for text, _, _ in answers] == [f"{name}{tag} 问题 {number} \ufffd" for number in range(3)]


def test_modern_call_ends_before_the_client_loses_patience(route: tuple[Probe, Era], name: str) -> None:
    probe, era = route
    with probe.client(era, echoing) as client:
        outcome = probe.extract(client, name, ROUNDS_LIMIT + 1)
    assert outcome["status"] == ("committed" if era == "legacy" else "queued")
    assert len(outcome["answers"]) == ROUNDS_LIMIT + (era == "legacy")


# Rounds of the modern era, by hand


class Round:
    """What ``Sampling`` reads of a call: a client of the modern era, in one of its rounds."""

    protocol_version = "2026-07-28"

    def __init__(self, previous: Any = None, text: str | None = None) -> None:
        self.request_state = previous.request_state if previous is not None else None
        self.input_responses = {key: said(text) for key in previous.input_requests} if text is not None else None


def run(running: Sampling[dict[str, Any]], evidence: Path, name: str, call: Round, questions: int = 2) -> Any:
    context: Any = call
    return running.run(lambda: extraction(name, questions, evidence), context, PATIENCE_SECONDS)


def test_repeated_round_is_answered_again_and_consumes_nothing(tmp_path: Path) -> None:
    running: Sampling[dict[str, Any]] = Sampling()
    evidence = tmp_path / "evidence"
    first = run(running, evidence, "重复", Round())
    assert run(running, evidence, "重复", Round(first)) == first
    second = run(running, evidence, "重复", Round(first, "one"))
    assert list(second.input_requests) != list(first.input_requests)
    assert run(running, evidence, "重复", Round(first, "other")) == second
    outcome = run(running, evidence, "重复", Round(second, "two"))
    assert [text for text, _, _ in outcome["answers"]] == ["one", "two"]
    assert run(running, evidence, "重复", Round(second, "three")) == outcome
    assert evidence.read_text(encoding="utf-8") == "重复 began\n重复 committed\n"


def test_state_of_another_process_starts_the_loop_anew(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    left: Sampling[dict[str, Any]] = Sampling()
    first = run(left, evidence, "旧", Round())
    restarted: Sampling[dict[str, Any]] = Sampling()
    again = run(restarted, evidence, "新", Round(first, "one"))
    assert isinstance(again, InputRequiredResult)
    assert again.request_state != first.request_state
    restarted.close()
    assert evidence.read_text(encoding="utf-8").endswith("新 began\n新 closed\n")
    left.close()  # its timer would outlive the test


def test_loops_over_the_limit_are_queued_at_once_and_make_room_when_they_end(tmp_path: Path) -> None:
    running: Sampling[dict[str, Any]] = Sampling(running_limit=1)
    evidence = tmp_path / "evidence"
    first = run(running, evidence, "一", Round(), 1)
    refused = run(running, evidence, "二", Round(), 1)
    assert refused["status"] == "queued"
    assert "Too many" in refused["reason"]
    assert run(running, evidence, "一", Round(first, "done"), 1)["status"] == "committed"
    third = run(running, evidence, "三", Round(), 1)
    assert isinstance(third, InputRequiredResult)
    running.close()
    assert isinstance(run(running, evidence, "四", Round(), 1), InputRequiredResult)
    running.close()


def test_one_bearer_of_a_token_leaves_room_for_the_others(tmp_path: Path) -> None:
    running: Sampling[dict[str, Any]] = Sampling()

    def asked(bearer: str) -> list[bool]:
        """Which of six calls of a bearer ask its client's model; none is answered."""
        token = auth_context_var.set(TokenUser(Bearer(bearer, bearer, bearer, "agent", read_only=False)))
        try:
            calls = [run(running, tmp_path / "evidence", f"{bearer}{number}", Round(), 1) for number in range(6)]
        finally:
            auth_context_var.reset(token)
        return [isinstance(call, InputRequiredResult) for call in calls]

    of_a_token = [True] * 4 + [False] * 2
    assert [asked("mallory"), asked("anna")] == [of_a_token, of_a_token]
    owner = [run(running, tmp_path / "evidence", f"{number}", Round(), 1) for number in range(9)]
    assert [isinstance(call, InputRequiredResult) for call in owner] == [True] * 8 + [False]
    running.close()
    assert asked("mallory") == of_a_token
    running.close()


def test_outcomes_kept_for_late_clients_are_bounded(tmp_path: Path) -> None:
    running: Sampling[dict[str, Any]] = Sampling()
    evidence = tmp_path / "evidence"
    rounds = []
    for number in range(sampling._KEPT_LIMIT + 1):
        rounds.append(run(running, evidence, f"第{number}", Round(), 1))
        assert run(running, evidence, "", Round(rounds[-1], "done"), 1)["status"] == "committed"
    assert run(running, evidence, "", Round(rounds[1], "again"), 1)["status"] == "committed"
    assert isinstance(run(running, evidence, "anew", Round(rounds[0], "again"), 1), InputRequiredResult)
    running.close()


def test_failing_loop_raises_and_makes_room() -> None:
    running: Sampling[dict[str, Any]] = Sampling(running_limit=1)

    def failing() -> Loop:
        yield LLMRequest("s", (Turn("user", "u"),), SCHEMA, "n", 8)
        raise RunebookError("the disk is full", hint="Make room.")

    for _ in range(2):
        call: Any = Round()
        first: Any = running.run(failing, call, PATIENCE_SECONDS)
        answered: Any = Round(first, "go on")
        with pytest.raises(RunebookError, match="disk is full"):
            running.run(failing, answered, PATIENCE_SECONDS)
        with pytest.raises(ModelFailed, match="ended early"):
            running.run(failing, answered, PATIENCE_SECONDS)


if __name__ == "__main__":
    serve_probe(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
