"""One table of a TOML file comes and goes; the rest stays byte for byte."""

from __future__ import annotations

import pytest

from memory_core.core.errors import InvalidInput
from server.hosts import toml_text

PATH = ("mcp_servers", "runebook")
ENTRY = {"command": "C:\\程序\\runebook.exe", "args": ["serve", "--home=/数据"]}
THEIRS = """\
# 我的
model = "gpt-5" # keep
notes = \"\"\"
[mcp_servers.runebook]
\"\"\"

[mcp_servers.other]
command = "x"
args = [
  "[not.a.table]",
]
"""


@pytest.mark.parametrize("text", ["", THEIRS, THEIRS.replace("\n", "\r\n"), f"\ufeff{THEIRS}"])
def test_table_goes_in_and_out_leaving_every_other_byte(text: str) -> None:
    changed = toml_text.set_table(text, PATH, ENTRY)
    assert toml_text.table_at(changed, PATH) == ENTRY
    assert changed.startswith(text)
    assert ("\r\n" in changed) == ("\r\n" in text)
    assert toml_text.remove_table(changed, PATH) == text


def test_changed_values_keep_comments_order_and_keys_of_others() -> None:
    text = (
        f'{THEIRS}\n[mcp_servers.runebook] # mine\n# 说明\ncommand = "old"\nargs = []\nenabled = true\n\n[z]\na = 1\n'
    )
    changed = toml_text.set_table(text, PATH, ENTRY)
    assert toml_text.table_at(changed, PATH) == {**ENTRY, "enabled": True}
    assert "# mine\n# 说明\ncommand = " in changed
    assert changed.endswith("enabled = true\n\n[z]\na = 1\n")
    assert toml_text.set_table(changed, PATH, ENTRY) == changed


def test_table_leaves_with_the_tables_below_it() -> None:
    text = f'{THEIRS}\n[mcp_servers.runebook]\ncommand = "a"\n[mcp_servers.runebook.env]\nA = "1"\n\n# 下\n[z]\na = 1\n'
    assert toml_text.remove_table(text, PATH) == f"{THEIRS}\n# 下\n[z]\na = 1\n"


def test_inline_table_leaves_with_its_line() -> None:
    text = '[mcp_servers]\nother = {command = "x"}\nrunebook = {command = "y", args = ["serve"]}\n'
    assert toml_text.remove_table(text, PATH) == '[mcp_servers]\nother = {command = "x"}\n'


@pytest.mark.parametrize("text", ["model = ", "mcp_servers = 1", "[mcp_servers]\nrunebook = 1"])
def test_text_that_is_no_toml_or_holds_something_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        toml_text.set_table(text, PATH, ENTRY)


def test_name_that_is_no_bare_key_is_quoted() -> None:
    changed = toml_text.set_table("", ("mcp_servers", "我的 记忆"), ENTRY)
    assert changed.startswith('[mcp_servers."我的 记忆"]\n')
    assert toml_text.remove_table(changed, ("mcp_servers", "我的 记忆")) == ""
