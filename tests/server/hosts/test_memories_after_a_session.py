"""What a running server makes memories of when a session ends, with the provider that is configured."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from memory_core.core.config import LLMConfig
from memory_core.core.llm.client import ScriptedLLM
from memory_core.core.memory.requests import CommitRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import open_memory
from server.hosts.hook_answers import answer
from tests.server.hosts.host_events import claude, said, write
from tests.stores import words_only
from tests.stores import write as writes


def test_what_was_undone_is_not_extracted_again_when_another_session_ends(tmp_path: Path) -> None:
    fact = {"write_operations": [writes("facts", topic="Osaka", content="Moves to Osaka.")]}
    answers = [json.dumps({"reasoning": "a move", "operations": fact})]
    answers.append(json.dumps({"reasoning": "nothing", "operations": {}}))
    llm = ScriptedLLM(answers)
    config = words_only(tmp_path / "home", llm=LLMConfig(provider="openai", model="m"))
    with open_memory(config, llm=llm) as memory:
        talk = [{"role": "user", "content": "I move to Osaka."}]
        memory.commit(CommitRequest(messages=talk, session_id="undone"))
        memory.run(UNDO, UndoRequest("last"))
        path = write(tmp_path / "t.jsonl", [said(0, "user", "The fence is painted.")])
        given = claude("SessionEnd", path) | {"session_id": "ended"}
        assert answer(memory, "session-end", given, resident=True).stored == 1
        for thread in [each for each in threading.enumerate() if each.name == "runebook-hook"]:
            thread.join()
        assert {row.session_id: row.waiting for row in memory.extractor.waiting()} == {"undone": 1}
        assert "The fence is painted." in llm.requests[-1].turns[0].text
        assert len(llm.requests) == 2
