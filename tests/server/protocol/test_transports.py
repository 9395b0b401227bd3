"""Stdio, streamable HTTP and SSE in both protocol eras: the same tools, many callers, sudden deaths."""

from __future__ import annotations

import itertools
import json
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client

from memory_core.core.errors import StoreBusy
from memory_core.core.memory.requests import TreeRequest
from memory_core.runebook import Runebook, open_memory
from server.protocol.app import build_server
from server.protocol.session import MemorySession, ServedStore
from tests.server.bearers import OPENING
from tests.server.conftest import WORDS_ONLY, text_of
from tests.stores import words_only
from tests.waiting import PATIENCE_SECONDS, in_a_loop, soon

if TYPE_CHECKING:
    from tests.server.conftest import Caller, Connect, HttpServer, RawClient, StartHttp


ROUTES = [(transport, era) for transport in ("stdio", "mcp", "sse") for era in ("legacy", "auto")]
NAMES = [f"{transport} {era}" for transport, era in ROUTES]
NOTES = "viking://user/default/memories/notes"


@pytest.fixture(scope="module", params=ROUTES, ids=NAMES)
def caller(
    request: pytest.FixtureRequest,
    connect: Connect,
    http_server: HttpServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Caller]:
    transport, era = request.param
    own = tmp_path_factory.mktemp("stdio") / "home"
    with connect(own if transport == "stdio" else f"{http_server.origin}/{transport}", era) as caller:
        yield caller


_NUMBERS = itertools.count()


def unique(caller: Caller) -> str:
    """A word that only the memories of one test of this caller hold."""
    return f"tag{id(caller):x}n{next(_NUMBERS)}"


def test_each_era_is_spoken(caller: Caller, request: pytest.FixtureRequest) -> None:
    modern = "auto" in request.node.name
    assert caller.client.protocol_version == ("2026-07-28" if modern else "2025-11-25")
    assert caller.client.server_info is not None
    assert caller.client.server_info.name == "runebook"
    assert "retrieve" in (caller.client.instructions or "")


def test_six_tools_serve_and_say_the_same_in_both_forms(caller: Caller) -> None:
    tag = unique(caller)
    listed = caller.portal.call(caller.client.list_tools).tools
    assert [tool.name for tool in listed] == ["commit_memory", "find", "read", "ls", "tree", "retrieve"]

    said = f"{tag} 的负责人是陈磊 and he sits in Chengdu."
    answer = caller.call("commit_memory", memory_content=said, fields={"title": f"负责人 {tag}"})
    receipt = answer.structured_content
    assert receipt is not None
    uri = f"{NOTES}/负责人 {tag}.md"
    assert (receipt["status"], receipt["results"]) == ("committed", [{"op": "write", "uri": uri, "action": "created"}])
    assert facts_in_text(answer, [receipt["status"], receipt["commit_id"], "created", uri])

    answer = caller.call("find", query=f"{tag} 负责人")
    found = answer.structured_content
    assert found is not None
    hit = found["memories"][0]
    assert hit["uri"] == uri
    assert found["total"] == len(found["memories"])
    assert set(hit) - {"project"} == {
        "uri",
        "context_type",
        "memory_type",
        "score",
        "confidence",
        "abstract",
        "updated_at",
        "why",
    }
    assert facts_in_text(
        answer, [f"{found['total']} found", hit["uri"], hit["abstract"], "notes", f"{hit['score']:.2f}", *hit["why"]]
    )

    answer = caller.call("read", uri=uri, limit=1)
    page = answer.structured_content
    assert page is not None
    assert page == {"uri": uri, "content": said, "first_line": 0, "total_lines": page["total_lines"], "next_offset": 1}
    assert facts_in_text(answer, [said, str(page["total_lines"]), "offset 1"])

    for tool, arguments in (("ls", {"uri": NOTES}), ("tree", {"level_limit": 9})):
        answer = caller.call(tool, **arguments)
        listing = answer.structured_content
        assert listing is not None
        assert uri in [entry["uri"] for entry in listing["entries"]]
        assert facts_in_text(
            answer, [part for entry in listing["entries"] for part in (entry["uri"], entry["abstract"])]
        )

    answer = caller.call("retrieve", query=tag, token_budget=500)
    pack = answer.structured_content
    assert pack is not None
    assert uri in [item["uri"] for part in pack["parts"] for item in part["items"]]
    texts = [item["text"] for part in pack["parts"] for item in part["items"]]
    assert said in texts
    assert facts_in_text(answer, texts)


def facts_in_text(answer: Any, facts: list[str]) -> bool:
    text = text_of(answer)
    missing = [fact for fact in facts if fact not in text]
    assert not missing, (missing, text)
    return not answer.is_error


def test_errors_resources_and_prompts_work_on_every_transport(caller: Caller) -> None:
    tag = unique(caller)
    answer = caller.call("read", uri="viking://user/default/../x")
    assert answer.is_error
    assert "Next: " in caller.text("find", query="")
    uri = caller.facts("commit_memory", memory_content=f"资源 {tag}")["results"][0]["uri"]
    assert caller.resource(uri).text.startswith(f"资源 {tag}\n")
    prompts = caller.portal.call(caller.client.list_prompts).prompts
    assert [prompt.name for prompt in prompts] == ["recall", "extract_memories"]
    (message,) = caller.portal.call(caller.client.get_prompt, "recall", {"query": tag}).messages
    assert tag in message.content.model_dump()["text"]


def test_damaged_text_passes_every_transport(caller: Caller) -> None:
    text = "emoji 🦊, NEL \x85, separators \u2028\u2029, bell \x07"
    uri = caller.facts("commit_memory", memory_content=text)["results"][0]["uri"]
    assert caller.facts("read", uri=uri)["content"].startswith(f"{text}\n")


def test_forty_parallel_calls_of_one_client_are_all_answered_rightly(caller: Caller) -> None:
    tag = unique(caller)

    def work(index: int) -> str:
        if index % 2:
            content = f"parallel {tag} 并行 {index}"
            result = caller.facts("commit_memory", memory_content=content, fields={"title": content})["results"][0]
            page = caller.facts("read", uri=result["uri"])
            assert page["content"].startswith(content)
            return str(result["uri"])
        return str(caller.facts("find", query=f"{tag} {index}")["total"])

    with ThreadPoolExecutor(40) as pool:
        outcomes = list(pool.map(work, range(40)))
    assert len(set(outcomes[1::2])) == 20
    found = caller.facts("find", query=f"parallel {tag} 并行", limit=100)
    assert set(outcomes[1::2]) <= {hit["uri"] for hit in found["memories"]}


def test_both_http_transports_share_one_store(connect: Connect, http_server: HttpServer) -> None:
    with connect(f"{http_server.origin}/mcp") as streamable, connect(f"{http_server.origin}/sse", "legacy") as sse:
        streamable.facts("commit_memory", memory_content="Zebra crossing 斑马线 on streamable HTTP.")
        assert sse.facts("find", query="斑马线")["total"] == 1
    with connect(f"{http_server.origin}/sse") as later:
        assert later.facts("find", query="zebra crossing")["total"] == 1


# Two servers, one store


def test_two_servers_on_one_store_see_each_others_commits_at_once(tmp_path: Path, raw_client: type[RawClient]) -> None:
    home = tmp_path / "home"
    with raw_client(home) as one, raw_client(home) as two:
        for index, (writer, reader) in enumerate([(one, two), (two, one), (one, two)]):
            content = f"Platypus number {index} 鸭嘴兽"
            receipt = writer.call("commit_memory", memory_content=content, fields={"title": content})
            uri = receipt["structuredContent"]["results"][0]["uri"]
            found = reader.call("find", query=f"platypus {index}")["structuredContent"]
            assert uri in [hit["uri"] for hit in found["memories"]]
            assert reader.call("read", uri=uri)["structuredContent"]["content"].startswith(content)
            assert uri in reader.call("tree", level_limit=9)["content"][0]["text"]
            moved = reader.call("commit_memory", operations={"delete_operations": [{"uri": uri}]})
            assert moved["structuredContent"]["status"] == "committed"
            gone = writer.call("find", query=f"platypus {index}")["structuredContent"]
            assert uri not in [hit["uri"] for hit in gone["memories"]]
            assert writer.call("read", uri=uri)["isError"]


def test_killed_server_loses_nothing_acknowledged_and_the_other_goes_on(
    tmp_path: Path, raw_client: type[RawClient]
) -> None:
    home = tmp_path / "home"
    acknowledged: queue.Queue[tuple[str, str]] = queue.Queue()
    stop = threading.Event()

    def commit_until_the_end(client: RawClient, name: str) -> None:
        for index in itertools.count():
            if stop.is_set():
                return
            content = f"{name} fact {index} 事实"
            try:
                receipt = client.call("commit_memory", memory_content=content, fields={"title": content})
            except (EOFError, BrokenPipeError):
                return
            assert receipt["structuredContent"]["status"] == "committed"
            acknowledged.put((receipt["structuredContent"]["results"][0]["uri"], content))

    def wait_for(number: int) -> list[tuple[str, str]]:
        return [acknowledged.get(timeout=PATIENCE_SECONDS) for _ in range(number)]

    with raw_client(home) as doomed, raw_client(home) as other, ThreadPoolExecutor(2) as pool:
        writing = [
            pool.submit(commit_until_the_end, doomed, "doomed"),
            pool.submit(commit_until_the_end, other, "other"),
        ]
        kept = wait_for(30)
        while not any(content.startswith("doomed") for _, content in kept):
            kept += wait_for(1)
        doomed.kill()
        writing[0].result(PATIENCE_SECONDS)
        kept += wait_for(20)
        stop.set()
        writing[1].result(PATIENCE_SECONDS)
    while not acknowledged.empty():
        kept.append(acknowledged.get())
    assert {content.split()[0] for _, content in kept} == {"doomed", "other"}
    with raw_client(home) as later:
        for uri, content in kept:
            assert later.call("read", uri=uri)["structuredContent"]["content"].startswith(content + "\n")
        listed = later.call("tree", level_limit=9, node_limit=10_000)["structuredContent"]["entries"]
        assert {uri for uri, _ in kept} <= {entry["uri"] for entry in listed}
        for uri, content in kept[:5] + kept[-5:]:
            found = later.call("find", query=content, limit=20)["structuredContent"]["memories"]
            assert uri in [hit["uri"] for hit in found]


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_client_that_leaves_at_once_leaves_no_noise(tmp_path: Path, lines: int) -> None:
    """The store may be opening in the background just then."""
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "tree", "arguments": {}}}
    program = [sys.executable, "-m", "server.cli", "serve", "--home", str(tmp_path / "home")]
    sent = "".join(f"{json.dumps(line)}\n" for line in (OPENING, call)[:lines]).encode()
    done = subprocess.run(program, input=sent, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2][:lines]


def test_store_is_shared_by_its_users_and_not_opened_for_one_who_has_left(tmp_path: Path) -> None:
    opened: list[Runebook] = []

    def opener() -> Runebook:
        opened.append(open_memory(words_only(tmp_path)))
        return opened[-1]

    session = MemorySession(opener)
    before = set(threading.enumerate())
    session.store.warm()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_SECONDS)
    assert opened == []
    session.acquire()
    session.acquire()
    memory = session.memory()
    session.release()
    assert session.memory() is memory
    assert memory.tree(TreeRequest()).entries == ()
    session.release()
    session.release()
    assert opened == [memory]


def test_a_store_that_could_not_be_opened_is_opened_ahead_for_the_next_client(tmp_path: Path) -> None:
    tried: list[int] = []

    def opener() -> Runebook:
        tried.append(1)
        if len(tried) == 1:
            raise StoreBusy("the database restarts.", hint="Wait.")
        return open_memory(words_only(tmp_path))

    session = MemorySession(opener)
    session.acquire()
    session.store.warm()
    assert soon(lambda: len(tried) == 1)

    def opened_ahead() -> bool:
        session.store.warm()
        return len(tried) == 2

    assert soon(opened_ahead)
    session.release()


@in_a_loop
async def test_a_private_client_whose_store_cannot_be_opened_is_served_and_not_counted_for_ever(tmp_path: Path) -> None:
    answers = False

    def opener() -> Runebook:
        if not answers:
            raise StoreBusy("the database restarts.", hint="Wait.")
        return open_memory(words_only(tmp_path))

    store = ServedStore(opener)
    async with Client(build_server(store, tmp_path, private=True), mode="legacy") as client:
        assert (await client.list_tools()).tools
    answers = True
    store.acquire()
    first = store.memory()
    store.release()  # whoever was counted still would keep it open
    store.acquire()
    assert store.memory() is not first
    store.release()


def test_a_client_that_connects_while_the_store_opens_keeps_no_other_waiting() -> None:
    opening, go_on = threading.Event(), threading.Event()

    def opener() -> Runebook:
        opening.set()
        assert go_on.wait(PATIENCE_SECONDS), "the loop waited for the store"
        raise StoreBusy("nobody asks.", hint="Wait.")

    store = ServedStore(opener)

    async def connects() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(connect)
            await anyio.wait_all_tasks_blocked()
            go_on.set()

    async def connect() -> None:
        async with Client(build_server(store), mode="legacy"):
            pass

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(store.memory)
        assert opening.wait(PATIENCE_SECONDS)
        anyio.run(connects)
        with pytest.raises(StoreBusy):
            first.result(PATIENCE_SECONDS)


# The MCP Inspector


INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"


@pytest.fixture(scope="module")
def inspector() -> Path:
    """The Inspector's command, installed by npm once a machine."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs Node and npm")
    folder = Path.home() / ".cache/runebook-tests/inspector"
    program = folder / "node_modules/.bin/mcp-inspector"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", INSPECTOR]
        subprocess.run(install, check=True, capture_output=True, timeout=600)
    return program


def flags(arguments: dict[str, Any]) -> list[str]:
    pairs = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()]
    return [part for pair in pairs for part in ("--tool-arg", pair)]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "mcp", "sse"])
def test_inspector_drives_all_six_tools(tmp_path: Path, inspector: Path, transport: str, start_http: StartHttp) -> None:
    if transport == "stdio":
        target = [sys.executable, "-m", "server.cli", "serve", "--home", str(tmp_path / "home"), *WORDS_ONLY]
    else:
        target = [f"{start_http().origin}/{transport}"]

    def inspect(*options: str) -> dict[str, Any]:
        done = subprocess.run(
            [str(inspector), "--cli", *target, *options], capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        answer = inspect("--method", "tools/call", "--tool-name", tool, *flags(arguments))
        assert not answer.get("isError"), answer
        facts: dict[str, Any] = answer["structuredContent"]
        return facts

    tools = inspect("--method", "tools/list", "--strict")["tools"]
    assert [tool["name"] for tool in tools] == ["commit_memory", "find", "read", "ls", "tree", "retrieve"]
    write = {"memory_data": {"memory_type": "facts", "fields": {"fact": "猫", "content": "The cat is called 豆豆."}}}
    receipt = call("commit_memory", operations={"write_operations": [write]})
    uri = receipt["results"][0]["uri"]
    assert receipt["status"] == "committed"
    assert call("commit_memory", memory_content="Likes tea 茶")["status"] == "committed"
    assert call("find", query="豆豆", limit=3, filter={"memory_type": "facts"})["memories"][0]["uri"] == uri
    assert "豆豆" in call("read", uri=uri, offset=0, limit=1)["content"]
    assert uri in [entry["uri"] for entry in call("ls", uri=uri.rpartition("/")[0])["entries"]]
    assert uri in [entry["uri"] for entry in call("tree", uri="viking://", level_limit=9)["entries"]]
    parts = call("retrieve", query="豆豆", token_budget=500)["parts"]
    assert "豆豆" in "".join(item["text"] for part in parts for item in part["items"])
    assert "豆豆" in inspect("--method", "resources/read", "--uri", uri)["contents"][0]["text"]
    assert len(inspect("--method", "prompts/list")["prompts"]) == 2
