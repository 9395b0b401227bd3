"""The project of a client, from its roots or the server's folder, in both eras: real servers and the SDK's client."""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from anyio.from_thread import BlockingPortal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, CreateMessageResult, ErrorData, ListRootsResult, Root, TextContent

from memory_core.core.memory.trailer import split
from tests.fork_server import starter
from tests.server.conftest import PATIENCE_SECONDS, WORDS_ONLY, HttpServer, command, environment

Era = Literal["legacy", "auto"]
ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])


class Roots:
    """A client's roots; counts how often they were asked for."""

    def __init__(self, *folders: Path | str) -> None:
        self.folders = folders
        self.asked = 0
        self.refuses = False
        self.sleeps = False

    async def __call__(self, _context: Any) -> ListRootsResult | ErrorData:
        self.asked += 1
        if self.sleeps:
            await anyio.sleep_forever()
        if self.refuses:
            return ErrorData(code=-32000, message="no")
        uris = [folder.as_uri() if isinstance(folder, Path) else folder for folder in self.folders]
        return ListRootsResult(roots=[Root(uri=uri) for uri in uris])


class Caller:
    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.portal = portal
        self.client = client

    def call(self, tool: str, **arguments: Any) -> CallToolResult:
        answer = self.portal.call(self.client.call_tool, tool, arguments, PATIENCE_SECONDS)
        assert isinstance(answer, CallToolResult)
        return answer

    def facts(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = self.call(tool, **arguments)
        assert not answer.is_error, answer.content
        facts: dict[str, Any] | None = answer.structured_content
        assert facts is not None
        return facts

    def project_of_a_new_case(self, name: str, **arguments: Any) -> str | None:
        fields = {"case_name": name, "content": "部署 deploy"}
        (result,) = self.facts("commit_memory", memory_type="cases", fields=fields, **arguments)["results"]
        text = self.facts("read", uri=result["uri"])["content"]
        project: str | None = (split(text).trailer or {}).get("project")
        return project


def repository(folder: Path, origin: str = "") -> Path:
    (folder / ".git").mkdir(parents=True)
    if origin:
        (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {origin}\n', encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def connected(portal: BlockingPortal) -> Callable[..., Any]:
    @contextmanager
    def connect(
        target: Path | str,
        era: Era,
        roots: Roots | None,
        *options: str,
        folder: Path | None = None,
        model: Callable[..., Awaitable[Any]] | None = None,
    ) -> Iterator[Caller]:
        with ExitStack() as stack:
            server: Any = target
            if isinstance(target, Path):
                program, *arguments = command(target, *WORDS_ONLY, *options)
                parameters = StdioServerParameters(
                    command=program, args=arguments, env=environment() | {"PYTHONPATH": str(Path.cwd())}, cwd=folder
                )
                target.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(target.with_name("stderr").open("a", encoding="utf-8", newline="\n"))
                server = stdio_client(parameters, errlog=log)
            offered: dict[str, Any] = {"list_roots_callback": roots, "sampling_callback": model}
            client = Client(server, mode=era, **offered)
            yield Caller(portal, stack.enter_context(portal.wrap_async_context_manager(client)))

    return connect


@ERAS
def test_memories_belong_to_the_project_of_the_clients_roots(connected: Any, tmp_path: Path, era: Era) -> None:
    repository(tmp_path / "back end", "git@github.com:Acme/Backend.git")
    roots = Roots(tmp_path / "no project", "file://elsewhere/share", tmp_path / "back end" / "src")
    with connected(tmp_path / "home", era, roots, folder=repository(tmp_path / "around")) as caller:
        assert caller.project_of_a_new_case("a → b") == "github.com/acme/backend"
        assert caller.project_of_a_new_case("c → d") == "github.com/acme/backend"
        found = caller.facts("find", query="deploy", project=".")["memories"]
        assert {hit["project"] for hit in found} == {"github.com/acme/backend"}
        assert caller.facts("find", query="deploy", project="around")["total"] == 0
        assert roots.asked == 1


@ERAS
def test_roots_without_a_project_leave_the_servers_folder(connected: Any, tmp_path: Path, era: Era) -> None:
    around = repository(tmp_path / "周围") / "src"
    around.mkdir()
    for roots in (Roots(tmp_path / "plain"), Roots(), None):
        with connected(tmp_path / f"home {id(roots)}", era, roots, folder=around) as caller:
            assert caller.project_of_a_new_case("a → b") == "周围"


def test_changed_roots_are_asked_for_again(connected: Any, tmp_path: Path) -> None:
    roots = Roots(repository(tmp_path / "one"))
    with connected(tmp_path / "home", "legacy", roots) as caller:
        assert caller.project_of_a_new_case("a → b") == "one"
        roots.folders = (repository(tmp_path / "two"),)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the capability is deprecated; clients of the era have it
            caller.portal.call(caller.client.send_roots_list_changed)
        assert caller.project_of_a_new_case("a → b") == "two"
        assert roots.asked == 2


def test_a_client_that_does_not_answer_costs_two_seconds_once(connected: Any, tmp_path: Path) -> None:
    roots = Roots()
    roots.sleeps = True
    with connected(tmp_path / "home", "legacy", roots, folder=repository(tmp_path / "around")) as caller:
        for name in ("a → b", "c → d", "e → f"):
            assert caller.project_of_a_new_case(name) == "around"
        assert roots.asked == 1


def test_a_client_that_refuses_is_left_alone(connected: Any, tmp_path: Path) -> None:
    roots = Roots()
    roots.refuses = True
    with connected(tmp_path / "home", "legacy", roots, folder=repository(tmp_path / "around")) as caller:
        assert caller.project_of_a_new_case("a → b") == "around"
        assert caller.project_of_a_new_case("c → d") == "around"
        assert roots.asked == 1


@ERAS
@pytest.mark.parametrize(
    ("options", "arguments", "project"),
    [
        (("--set", "project.detect=false"), {}, None),
        (("--set", "project.name=github.com/acme/set"), {}, "github.com/acme/set"),
        ((), {"project": "支付系统"}, "支付系统"),
        ((), {"project": "global"}, None),
    ],
)
def test_roots_are_not_asked_for_where_they_do_not_count(
    connected: Any, tmp_path: Path, era: Era, options: tuple[str, ...], arguments: dict[str, str], project: str | None
) -> None:
    roots = Roots(repository(tmp_path / "one"))
    with connected(tmp_path / "home", era, roots, *options, folder=repository(tmp_path / "around")) as caller:
        assert caller.project_of_a_new_case("a → b", **arguments) == project
        assert roots.asked == 0


@ERAS
def test_two_clients_of_one_server_keep_their_projects(
    connected: Any, tmp_path: Path, era: Era, start_http: Callable[..., HttpServer]
) -> None:
    server = start_http(tmp_path / "home", tmp_path / "stderr", *WORDS_ONLY)
    first, second = Roots(repository(tmp_path / "one")), Roots(repository(tmp_path / "two"))
    with (
        connected(f"{server.origin}/mcp", era, first) as one,
        connected(f"{server.origin}/mcp", era, second) as two,
        connected(f"{server.origin}/mcp", era, None) as plain,
    ):
        for number in range(2):
            assert one.project_of_a_new_case(f"a{number} → b", private=True) == "one"
            assert two.project_of_a_new_case(f"a{number} → b", private=True) == "two"
            assert plain.project_of_a_new_case(f"a{number} → b") is None
        assert {hit["project"] for hit in one.facts("find", query="deploy")["memories"] if "project" in hit} == {"one"}
        assert all("project" not in hit for hit in plain.facts("find", query="deploy")["memories"])


@ERAS
def test_a_client_that_gives_roots_and_its_model_gets_both_asked(connected: Any, tmp_path: Path, era: Era) -> None:
    said = {"case_name": "Stuck → Fixed", "content": "重启队列"}
    operations = {"write_operations": [{"memory_data": {"memory_type": "cases", "fields": said}}]}
    answer = json.dumps({"reasoning": "worth it", "operations": operations}, ensure_ascii=False)

    async def model(_context: Any, _params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=answer), model="m")

    roots = Roots(repository(tmp_path / "one"))
    with connected(tmp_path / "home", era, roots, "--set", "llm.provider=sampling", model=model) as caller:
        messages = [{"role": "user", "content": "How did we fix the stuck queue?"}]
        facts = caller.facts("commit_memory", messages=messages, session_id="s")
        assert facts["status"] == "committed"
        text = caller.facts("read", uri="viking://agent/default/memories/cases/Stuck → Fixed.md")["content"]
        assert (split(text).trailer or {})["project"] == "one"
        assert (
            json.loads(caller.facts("read", uri="viking://session/default/s/messages.jsonl")["content"])["project"]
            == "one"
        )


@ERAS
def test_a_forged_project_is_refused_with_the_next_step(connected: Any, tmp_path: Path, era: Era) -> None:
    with connected(tmp_path / "home", era, None) as caller:
        for forged in ("a\nb", "x" * 300):
            answer = caller.call("commit_memory", memory_content="x", project=forged)
            assert answer.is_error
            assert isinstance(answer.content[0], TextContent)
            assert "github.com/acme/backend" in answer.content[0].text


def test_the_command_line_works_in_the_project_of_its_folder(tmp_path: Path) -> None:
    folder = repository(tmp_path / "周围", "https://gitlab.com/Team/App.git")
    home = tmp_path / "home"

    def run(*arguments: str, **settings: str) -> Any:
        variables = environment() | {"RUNEBOOK_EMBEDDING_PROVIDER": "none", **settings}
        ended = starter().call(*arguments, "--home", str(home), "--json", cwd=folder, env=variables)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    assert run("config")["current_project"]["value"] == "gitlab.com/team/app"
    assert run("config", RUNEBOOK_PROJECT_DETECT="false")["current_project"]["value"] is None
    assert run("config", RUNEBOOK_PROJECT_NAME="支付")["current_project"]["value"] == "支付"
    run("commit", "Deploy with helm", "--type", "patterns", "--private")
    assert run("find", "helm", "--project", ".")["total"] == 1
    assert run("find", "helm", RUNEBOOK_PROJECT_NAME="支付")["total"] == 0
    assert run("find", "helm", "--project", "gitlab.com/team/app", RUNEBOOK_PROJECT_DETECT="false")["total"] == 1
