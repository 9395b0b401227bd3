"""The settings file is changed as a whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from memory_core.core import settings_file
from memory_core.core.errors import ConfigInvalid
from memory_core.core.settings_file import SettingsFile


@pytest.mark.parametrize("section", ["openai", None, [1]])
def test_a_section_that_is_none_is_refused_and_the_file_stays(tmp_path: Path, section: Any) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"llm": section}), encoding="utf-8")
    with pytest.raises(ConfigInvalid, match="'llm' in the settings file is no section"):
        SettingsFile(file, {}, {"home": str(tmp_path)}).write({"llm.model": "fast"})
    assert json.loads(file.read_text(encoding="utf-8")) == {"llm": section}


_WRITER = """
import sys
from pathlib import Path
from memory_core.core.settings_file import SettingsFile

file, name = Path(sys.argv[1]), sys.argv[2]
for line in sys.stdin:
    SettingsFile(file, {}, {"home": str(file.parent)}).write({name: int(line)})
    print("written", flush=True)
"""


def test_of_two_programs_that_write_settings_at_once_both_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}", encoding="utf-8")
    names = ("chat.max_tokens", "maintenance.archive_days")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(file), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for name in names
    ]
    try:
        for number in range(1_000, 1_150):
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write(b"%d\n" % number)
                writer.stdin.flush()
            for writer in writers:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"written\n"
            kept = json.loads(file.read_text(encoding="utf-8"))
            assert kept == {"chat": {"max_tokens": number}, "maintenance": {"archive_days": number}}
    finally:
        for writer in writers:
            writer.communicate()


def test_whoever_writes_settings_waits_for_whoever_does_already(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    settings = SettingsFile(None, {}, {"home": str(tmp_path)})
    settings.write({"llm.model": "fast"})
    with ThreadPoolExecutor(1) as pool:
        with settings_file._lock_of(file).held():
            written = pool.submit(settings.write, {"llm.max_tokens": 900})
            with pytest.raises(TimeoutError):
                written.result(0.2)
            file.write_text(json.dumps({"llm": {"model": "slow"}}), encoding="utf-8")
        written.result(30)
    assert json.loads(file.read_text(encoding="utf-8")) == {"llm": {"model": "slow", "max_tokens": 900}}
