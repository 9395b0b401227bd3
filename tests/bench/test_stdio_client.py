"""A child is given no settings of this shell's, and does not outlive its client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import stdio_client
from bench.stdio_client import StdioClient

CHILD = """
import json, os, sys, time
json.loads(sys.stdin.readline())
print(json.dumps({"id": 1, "result": {}}), flush=True)
sys.stdin.readline()
asked = json.loads(sys.stdin.readline())
print(json.dumps({"id": asked["id"], "result": {"process": os.getpid(), "environment": dict(os.environ)}}), flush=True)
if sys.argv[1:] == ["stay"]:
    time.sleep(3_600)
"""


def test_a_child_is_given_no_settings_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNEBOOK_SEARCH_RANK", "decay")
    with StdioClient([sys.executable, "-c", CHILD], {"RUNEBOOK_OWNER_NAMES": "Mira"}) as client:
        seen = client.request("look", {})["environment"]
    assert {name: value for name, value in seen.items() if name.startswith("RUNEBOOK_")} == {
        "RUNEBOOK_OWNER_NAMES": "Mira"
    }


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes as Linux shows them")
def test_a_child_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_client, "_END_SECONDS", 0.01)
    client = StdioClient([sys.executable, "-c", CHILD, "stay"])
    process = client.request("look", {})["process"]
    assert client.resident_mib() > 1
    assert client.proportional_mib() > 1
    with pytest.raises(subprocess.TimeoutExpired):
        client.__exit__(None, None, None)
    assert not Path(f"/proc/{process}").exists()
    assert stdio_client.resident_mib(process) == 0
