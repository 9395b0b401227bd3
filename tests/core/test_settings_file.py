"""The settings file is changed as a whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import ConfigInvalid
from memory_core.core.settings_file import SettingsFile


@pytest.mark.parametrize("section", ["openai", None, [1]])
def test_a_section_that_is_none_is_refused_and_the_file_stays(tmp_path: Path, section: Any) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"llm": section}), encoding="utf-8")
    with pytest.raises(ConfigInvalid, match="'llm' in the settings file is no section"):
        SettingsFile(file, {}, {"home": str(tmp_path)}).write({"llm.model": "fast"})
    assert json.loads(file.read_text(encoding="utf-8")) == {"llm": section}
