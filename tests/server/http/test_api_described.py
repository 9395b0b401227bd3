"""The API does what its description says: thousands of generated requests, checked against OpenAPI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.memory.requests import CommitRequest
from server.http.api import description
from tests.server.http.conftest import OWNER_KEY, desk_at

if TYPE_CHECKING:
    from tests.server.http.conftest import Desk


_EXAMPLES = int(os.environ.get("RUNEBOOK_FUZZ_EXAMPLES", "12"))
_NEEDS_MODEL = "POST /api/memory/consolidate"


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk_at(tmp_path_factory.mktemp("described")) as made:
        made.owner.keep("Green tea.", fields={"title": "Tea"})
        made.owner.keep("早上喝绿茶。", "preferences", fields={"topic": "茶"})
        memory = made.store.memory()
        memory.commit(
            CommitRequest(messages=[{"role": "user", "content": "Where is my tea? 茶在哪？"}], session_id="tea-talk")
        )
        yield made


def test_answers_of_the_door_and_of_a_summary_that_moved_on_are_described() -> None:
    found = description()
    for operation in (each for path in found["paths"].values() for each in path.values()):
        kinds = {status: set(said.get("content", ())) for status, said in operation["responses"].items()}
        for status in ("401", "429"):
            assert kinds[status] == {"text/plain"}
        for status in ("403", "503"):
            assert kinds[status] == {"text/plain", "application/json"}
    summary = found["components"]["schemas"]["ConflictAnswer"]["properties"]["summary"]
    assert {"$ref": "#/components/schemas/RollingSummaryAnswer"} in summary["anyOf"]


@pytest.mark.slow
def test_generated_requests_are_answered_as_described(furnished: Desk) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_dict(furnished.owner.facts("GET", "/api/openapi.json"))
    seen: dict[str, set[int]] = {}
    generated = settings(
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        derandomize="RUNEBOOK_FUZZ_EXAMPLES" not in os.environ,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def answered(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url="http://127.0.0.1")
        headers = {**dict(sent.get("headers") or {}), "authorization": f"Bearer {OWNER_KEY}"}
        known = {name: sent[name] for name in ("method", "url", "params", "json") if name in sent}
        if "data" in sent:
            known["content"] = sent["data"]
        reply = furnished.client.request(**known, headers=headers)
        seen.setdefault(case.operation.label, set()).add(reply.status_code)
        # Declared, and seen where no model is configured.
        wanted = checks[1:] if (case.operation.label, reply.status_code) == (_NEEDS_MODEL, 503) else checks
        case.validate_response(schemathesis.Response.from_any(reply), checks=wanted)

    for found in schema.get_all_operations():
        operation = found.ok()

        generated(given(case=operation.as_strategy())(answered))()
    assert len(seen) >= 30
    unheard = {label for label, codes in seen.items() if not codes & {200, 201, 404, 503}}
    # These need an ETag, or something that is there; ``test_entries`` has them.
    needy = {f"{method} /api/memory/entries/{{path}}" for method in ("PATCH", "DELETE")} | {
        "POST /api/memory/backups",  # without a body none names its type; ``test_api_transfers`` has it
        "POST /api/memory/bulk",
        "POST /api/memory/relations",
    }
    assert unheard <= needy, {label: seen[label] for label in unheard - needy}
