"""Tables of words: each belongs to a module, and what looks like a token is never passed over for want of a cue."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memory_core
from memory_core.core.text.word_table import CuedPattern, cued_patterns, word_pattern
from memory_core.features import redaction

PACKAGE = Path(memory_core.__file__).parent


def test_every_table_belongs_to_the_module_beside_it_or_is_named_by_one() -> None:
    tables = [path for folder in ("core", "features") for path in (PACKAGE / folder).rglob("*.json")]
    assert tables
    for table in tables:
        modules = {path.stem: path.read_text(encoding="utf-8") for path in table.parent.glob("*.py")}
        assert "__file__" in modules.get(table.stem, "") or any(table.name in text for text in modules.values()), table


@pytest.mark.parametrize("rule", cued_patterns(redaction.__file__, "tokens"), ids=lambda rule: str(rule.name))
def test_what_looks_like_a_token_holds_a_cue_of_its_rule(rule: CuedPattern) -> None:
    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(st.from_regex(rule.compiled))
    def run(text: str) -> None:
        assert rule.cued(text)

    run()


def test_a_part_stands_for_a_list_of_the_table() -> None:
    assert word_pattern(redaction.__file__, "card").search("4111 1111 1111 1111")


def test_text_knows_nothing_that_stands_above_it() -> None:
    for path in (PACKAGE / "core" / "text").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not re.match(r"memory_core\.(features|core\.(?!text|memory|frozen|caches))", module), (
                path.name,
                module,
            )
