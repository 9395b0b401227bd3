"""File names may hold what elsewhere parts a line's number from its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_core.core.memory.requests import CommitRequest, RetrieveRequest
from memory_core.runebook import open_memory
from tests.stores import words_only


@pytest.mark.parametrize("title", ["Ticket #5", "C# tips", "# heading", "工单 #12 登录"])
def test_memory_with_a_hash_in_its_name_comes_into_context(tmp_path: Path, title: str) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        (result,) = memory.commit(
            CommitRequest("The turnstile 闸机 rejects old badges.", fields={"title": title})
        ).results
        assert "#" in result.uri
        pack = memory.retrieve(RetrieveRequest("turnstile 闸机 badges"))
        assert any("rejects old badges" in part.text for part in pack.parts)
        path = tmp_path / result.uri.removeprefix("viking://")
        path.write_text(path.read_text("utf-8").replace("rejects", "now accepts"), "utf-8")
        assert memory.store.adoption.renew([result.uri])
