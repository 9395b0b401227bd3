"""The page tells sentences of the server in the reader's language; it knows them by what the server really says."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_SPEAKERS = ("doctor", "doctor_checks", "history", "undo", "purge", "forgetting", "rebuild")
_PLACE = re.compile(r"\{\w+\}")
#: A text that says less of its own would be found in anything.
_LEAST_OWN_CHARS = 10


def _said() -> Iterator[re.Pattern[str]]:
    """Every string of the sources that speak, what varies in it standing for anything."""
    for path in (_ROOT / "memory_core" / "features" / f"{name}.py" for name in _SPEAKERS):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts: list[str | None] = [node.value]
            elif isinstance(node, ast.JoinedStr):
                values = (value.value if isinstance(value, ast.Constant) else None for value in node.values)
                parts = [value if isinstance(value, str) else None for value in values]
            else:
                continue
            if sum(len(part or "") for part in parts) >= _LEAST_OWN_CHARS:
                yield re.compile("".join(".+" if part is None else re.escape(part) for part in parts), re.DOTALL)
    table = json.loads((_ROOT / "memory_core" / "features" / "doctor_checks.json").read_text(encoding="utf-8"))
    asked = (rows for name, rows in table.items() if name.startswith(("ledger", "catalog")))
    rows = [*table["checks"].values(), *chain.from_iterable(asked)]
    for sentence in (*table["repairs"].values(), *(row[2] for row in rows)):
        yield re.compile(".+".join(map(re.escape, _PLACE.split(sentence))), re.DOTALL)


def test_every_sentence_that_the_page_translates_is_one_that_the_server_says() -> None:
    said = list(_said())
    texts = json.loads((_ROOT / "server" / "page" / "locales" / "en.json").read_text(encoding="utf-8"))
    translated = {text for key, text in texts.items() if key.startswith("says.")}
    assert len(translated) > 50
    assert {text for text in translated if not any(known.fullmatch(text) for known in said)} == set()
