"""docs/deployment.md step by step: two users with tokens on one HTTP server, their vectors on a Chroma server."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.chroma_process import ChromaProcess
from memory_core.core.config import Config, IndexConfig
from memory_core.features.doctor import examine
from memory_core.features.doctor_checks import Severity
from memory_core.open_store import load_registry
from tests.fork_server import starter
from tests.server.conftest import Caller, Connect, HttpServer
from tests.waiting import soon

pytestmark = pytest.mark.slow

SAID = {
    "anna": ("The quokka lives on Rottnest island.", "短尾矮袋鼠怕高温天气。", "Grandmother's violin is in the attic."),
    "bob": ("The ferry to Naxos leaves at nine.", "渡轮票要提前两天买。", "Sourdough needs a cold night."),
}
ASKED = {
    "anna": ("where does the marsupial live", "袋鼠怕什么"),
    "bob": ("when does the boat depart", "什么时候买船票"),
}


def runebook(home: Path, *arguments: str) -> Any:
    """What a command prints, as JSON."""
    return json.loads(starter().call(*arguments, "--home", str(home), "--json").stdout)


def away(found: dict[str, Any]) -> bool:
    """Whether a search says that it did without the server."""
    return any("vector server" in note for note in found.get("notes", ()))


def texts(found: dict[str, Any]) -> str:
    return json.dumps(found.get("memories", []), ensure_ascii=False)


def test_two_users_share_a_server_and_a_vector_server_that_comes_and_goes(tmp_path: Path, connect: Connect) -> None:
    home = tmp_path / "home"
    (tmp_path / "chroma").mkdir()
    tokens = {name: runebook(home, "token", "add", name, "--user-space", name)["token"] for name in SAID}
    with ChromaProcess(tmp_path / "chroma") as chroma:
        config = Config(home=home, index=IndexConfig(mode="http", url=chroma.url))
        settings = {
            "index.mode": "http",
            "index.url": chroma.url,
            "embedding.provider": "bundled",
            "search.cached_queries": 0,  # answers of a cache would need no server
            "embedding.wait_seconds": 60,  # a busy machine loads the model slowly
        }
        options = tuple(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))

        def serve() -> HttpServer:
            return HttpServer(home, tmp_path / "errors.txt", *options)

        def sent() -> bool:
            found = examine(config, load_registry(config)).of("vector server")
            return bool(found) and found[0].severity is Severity.OK and "; 0 are to be sent" in found[0].detail

        def as_user(server: HttpServer, name: str, work: Callable[[Caller], Any]) -> Any:
            with connect(f"{server.origin}/mcp", token=tokens[name]) as caller:
                return work(caller)

        def both(server: HttpServer, work: Callable[[str, Caller], Any]) -> list[Any]:
            with ThreadPoolExecutor(2) as pool:
                return [
                    *pool.map(lambda name: as_user(server, name, lambda caller: work(name, caller)), SAID, timeout=120)
                ]

        def commit(name: str, caller: Caller) -> None:
            for text in SAID[name]:
                assert caller.facts("commit_memory", memory_content=text)["status"] == "committed"

        def own_alone(name: str, caller: Caller) -> bool:
            other = next(user for user in SAID if user != name)
            missing = False
            for query in ASKED[name]:
                found = caller.facts("find", query=query)
                assert any(text[:12] in texts(found) for text in SAID[name]), found
                missing |= away(found)
            for text in SAID[other]:
                assert text[:12] not in texts(caller.facts("find", query=text))
            assert f"/{other}/" not in json.dumps(caller.facts("tree"))
            return missing

        server = serve()
        try:
            both(server, commit)
            assert not any(both(server, own_alone))
            assert soon(sent)
            chroma.kill()
            assert all(both(server, own_alone))  # nothing is missed, and it is said
            report = examine(config, load_registry(config)).of("vector server")
            assert report[0].severity is Severity.WARNING
            as_user(
                server, "anna", lambda caller: caller.facts("commit_memory", memory_content="The attic is dry. 阁楼")
            )
            assert server.stop() is not None
            server = serve()  # without the vector server
            both(server, own_alone)
            chroma.start()
            assert soon(lambda: not any(both(server, own_alone)))
            assert soon(sent)
            figures = runebook(home, "stats", "--all", *options)["vector_server"]
            assert figures["held"] == figures["sent"] > 0
            assert runebook(home, "rebuild", *options)["documents"] > 0
            assert sent()
        finally:
            server.stop()
