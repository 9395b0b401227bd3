"""The project of a client, from its roots or the server's folder, in both eras: real servers and the SDK's client."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.types import CreateMessageResult, ErrorData, ListRootsResult, Root, TextContent

from memory_core.core.memory.trailer import split
from tests.fork_server import starter
from tests.server.conftest import ERAS, Caller, Connect, Era, StartHttp, environment, text_of


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


def project_of_a_new_case(caller: Caller, name: str, **arguments: Any) -> str | None:
    fields = {"case_name": name, "content": "部署 deploy"}
    (result,) = caller.facts("commit_memory", memory_type="cases", fields=fields, **arguments)["results"]
    text = caller.facts("read", uri=result["uri"])["content"]
    project: str | None = (split(text).trailer or {}).get("project")
    return project


def repository(folder: Path, origin: str = "") -> Path:
    (folder / ".git").mkdir(parents=True)
    if origin:
        (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {origin}\n', encoding="utf-8")
    return folder


@ERAS
def test_memories_belong_to_the_project_of_the_clients_roots(connect: Connect, tmp_path: Path, era: Era) -> None:
    repository(tmp_path / "back end", "git@github.com:Acme/Backend.git")
    roots = Roots(tmp_path / "no project", "file://elsewhere/share", tmp_path / "back end" / "src")
    around = repository(tmp_path / "around")
    with connect(tmp_path / "home", era, cwd=around, list_roots_callback=roots) as caller:
        assert project_of_a_new_case(caller, "a → b") == "github.com/acme/backend"
        assert project_of_a_new_case(caller, "c → d") == "github.com/acme/backend"
        found = caller.facts("find", query="deploy", project=".")["memories"]
        assert {hit["project"] for hit in found} == {"github.com/acme/backend"}
        assert caller.facts("find", query="deploy", project="around")["total"] == 0
        assert roots.asked == 1


@ERAS
def test_roots_without_a_project_leave_the_servers_folder(connect: Connect, tmp_path: Path, era: Era) -> None:
    around = repository(tmp_path / "周围") / "src"
    around.mkdir()
    for roots in (Roots(tmp_path / "plain"), Roots(), None):
        with connect(tmp_path / f"home {id(roots)}", era, cwd=around, list_roots_callback=roots) as caller:
            assert project_of_a_new_case(caller, "a → b") == "周围"


def test_changed_roots_are_asked_for_again(connect: Connect, tmp_path: Path) -> None:
    roots = Roots(repository(tmp_path / "one"))
    with connect(tmp_path / "home", "legacy", list_roots_callback=roots) as caller:
        assert project_of_a_new_case(caller, "a → b") == "one"
        roots.folders = (repository(tmp_path / "two"),)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the capability is deprecated; clients of the era have it
            caller.portal.call(caller.client.send_roots_list_changed)
        assert project_of_a_new_case(caller, "a → b") == "two"
        assert roots.asked == 2


@pytest.mark.parametrize("manner", ["sleeps", "refuses"])
def test_a_client_that_does_not_answer_or_refuses_is_asked_once(connect: Connect, tmp_path: Path, manner: str) -> None:
    roots = Roots()
    setattr(roots, manner, True)
    around = repository(tmp_path / "around")
    with connect(tmp_path / "home", "legacy", cwd=around, list_roots_callback=roots) as caller:
        for name in ("a → b", "c → d", "e → f"):
            assert project_of_a_new_case(caller, name) == "around"
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
    connect: Connect, tmp_path: Path, era: Era, options: tuple[str, ...], arguments: dict[str, str], project: str | None
) -> None:
    roots = Roots(repository(tmp_path / "one"))
    around = repository(tmp_path / "around")
    with connect(tmp_path / "home", era, *options, cwd=around, list_roots_callback=roots) as caller:
        assert project_of_a_new_case(caller, "a → b", **arguments) == project
        assert roots.asked == 0


@ERAS
def test_two_clients_of_one_server_keep_their_projects(
    connect: Connect, tmp_path: Path, era: Era, start_http: StartHttp
) -> None:
    address = f"{start_http().origin}/mcp"
    first, second = Roots(repository(tmp_path / "one")), Roots(repository(tmp_path / "two"))
    with (
        connect(address, era, list_roots_callback=first) as one,
        connect(address, era, list_roots_callback=second) as two,
        connect(address, era) as plain,
    ):
        for number in range(2):
            assert project_of_a_new_case(one, f"a{number} → b", private=True) == "one"
            assert project_of_a_new_case(two, f"a{number} → b", private=True) == "two"
            assert project_of_a_new_case(plain, f"a{number} → b") is None
        assert {hit["project"] for hit in one.facts("find", query="deploy")["memories"] if "project" in hit} == {"one"}
        assert all("project" not in hit for hit in plain.facts("find", query="deploy")["memories"])


@ERAS
def test_a_client_that_gives_roots_and_its_model_gets_both_asked(connect: Connect, tmp_path: Path, era: Era) -> None:
    said = {"case_name": "Stuck → Fixed", "content": "重启队列"}
    operations = {"write_operations": [{"memory_data": {"memory_type": "cases", "fields": said}}]}
    answer = json.dumps({"reasoning": "worth it", "operations": operations}, ensure_ascii=False)

    async def model(_context: Any, _params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=answer), model="m")

    roots = Roots(repository(tmp_path / "one"))
    options, offered = ("--set", "llm.provider=sampling"), {"list_roots_callback": roots, "sampling_callback": model}
    with connect(tmp_path / "home", era, *options, **offered) as caller:
        messages = [{"role": "user", "content": "How did we fix the stuck queue?"}]
        facts = caller.facts("commit_memory", messages=messages, session_id="s")
        assert facts["status"] == "committed"
        text = caller.facts("read", uri="viking://agent/default/memories/cases/Stuck → Fixed.md")["content"]
        assert (split(text).trailer or {})["project"] == "one"
        (message,) = caller.facts("read", uri="viking://session/default/s/messages.jsonl")["content"].splitlines()
        assert json.loads(message)["project"] == "one"


@ERAS
def test_a_forged_project_is_refused_with_the_next_step(connect: Connect, tmp_path: Path, era: Era) -> None:
    with connect(tmp_path / "home", era) as caller:
        for forged in ("a\nb", "x" * 300):
            answer = caller.call("commit_memory", memory_content="x", project=forged)
            assert answer.is_error
            assert "github.com/acme/backend" in text_of(answer)


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
