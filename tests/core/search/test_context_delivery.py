"""A context pack as a tool result: both forms say the same and stay below the limit, in every format."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.types import TextContent

from memory_core.core.memory.requests import CONTEXT_FORMATS, RetrieveRequest
from memory_core.runebook import Runebook, open_memory
from server import rendering
from tests.stores import remember, said, words_only

SAID_AS = {"blocks": "parts", "text": "text", "system": "text"}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    home = tmp_path_factory.mktemp("crowded")
    with open_memory(words_only(home)) as memory:
        remember(memory, 'A nurse 护士 "quoted" \\\\ ' * 60, "profile")
        for number in range(24):
            remember(memory, f'zebra {number} 斑马 "\\\\" ' + 'a considerably longer "word" in quotes\n' * 40, "facts")
        said(memory, *(f"zebra {n} " + "说话 " * 90 for n in range(12)))
        yield memory


def delivered(memory: Runebook, **given: Any) -> tuple[str, dict[str, Any]]:
    answer = rendering.retrieve_result(memory.retrieve(RetrieveRequest("zebra", **given), fit=rendering.smaller_budget))
    texts = [block.text for block in answer.content if isinstance(block, TextContent)]
    assert answer.structured_content is not None
    return "\n".join(texts), answer.structured_content


@pytest.mark.parametrize("form", CONTEXT_FORMATS)
@pytest.mark.parametrize("budget", [400, 4_000, 10_000])
def test_a_result_stays_below_the_limit_and_says_the_same_twice(crowded: Runebook, form: str, budget: int) -> None:
    text, facts = delivered(crowded, format=form, token_budget=budget)
    assert len(text) + len(json.dumps(facts, ensure_ascii=False)) < rendering.RESULT_LIMIT_CHARS
    assert facts["tokens"] <= budget
    assert {"parts", "text", "messages"} & set(facts) == {SAID_AS.get(form, "messages")}
    if form == "blocks":
        said = [(item["uri"], item["text"]) for part in facts["parts"] for item in part["items"]]
        turns = "viking://session/"
        assert all(uri == turns or f'<item uri="{uri}"' in text or f"{uri} {body}" in text for uri, body in said)
        assert all(body in text and json.dumps(facts).count(json.dumps(uri)) == 1 for uri, body in said)
    elif form.startswith("messages"):
        assert json.loads(text.splitlines()[0]) == facts["messages"]
    else:
        assert text.startswith(facts["text"])
    assert not facts["left_out_count"] or f"left out for the budget: {facts['left_out_count']}" in text
    assert all(uri in text for uri in facts["left_out"])
    assert all(note in text for note in facts.get("notes", []))


def test_a_pack_made_smaller_for_delivery_says_so_and_is_noted_as_delivered(crowded: Runebook) -> None:
    text, facts = delivered(crowded, token_budget=10_000, session_id="a")
    given = {item["uri"] for part in facts["parts"] for item in part["items"] if "quotes\n…" not in item["text"]}
    assert "more could not be delivered" in text
    _, later = delivered(crowded, token_budget=10_000, session_id="a")
    assert len(given) > 5
    assert given & {item["uri"] for part in later["parts"] for item in part["items"]} <= {"viking://session/"}
    assert later["parts"]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_ledger_that_cannot_note_it_costs_no_context(tmp_path: Path, fresh: bool) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        remember(memory, "The zebra 斑马 lives in the annex.")
        memory.retrieve(RetrieveRequest("zebra", session_id="s1"))
        other = sqlite3.connect(tmp_path / ".state" / "ledger.sqlite3", isolation_level=None)
        for event in ("INSERT ON", "UPDATE ON", "DELETE ON"):
            refuse = f"BEFORE {event} injected_sessions BEGIN SELECT RAISE(ABORT, 'full'); END"
            other.execute(f"CREATE TRIGGER refuse_{event[:6]} {refuse}")
        other.close()
        pack = memory.retrieve(RetrieveRequest("zebra", session_id="s1", fresh=fresh))
        assert ("annex" in pack.text) is fresh
        assert any("may be given again" in note for note in pack.notes)
