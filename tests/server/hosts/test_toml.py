"""One table of a TOML file comes and goes; the rest stays byte for byte."""

from __future__ import annotations

import pytest

from memory_core.core.errors import InvalidInput
from server.foreign_json import value_at
from server.hosts import toml

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


@pytest.mark.parametrize(
    "text",
    [
        "",
        THEIRS,
        THEIRS.replace("\n", "\r\n"),
        f"\ufeff{THEIRS}",
        f"{THEIRS}\n[z]\na = 1",
        'mcp_servers.other.command = "x"\n',
        '[mcp_servers]\nother = {command = "x"} # 别动\n',
    ],
    ids=repr,
)
def test_table_goes_in_and_out_leaving_every_other_byte(text: str) -> None:
    changed = toml.put(text, PATH, ENTRY)
    assert value_at(toml.read(changed), PATH) == ENTRY
    assert changed.startswith(text)
    assert ("\r\n" in changed) == ("\r\n" in text)
    assert toml.put(changed, PATH, ENTRY) == changed
    assert toml.remove(changed, PATH).removesuffix("\n") == text.removesuffix("\n")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_changed_values_keep_comments_order_and_keys_of_others(ending: str) -> None:
    table = '\n[mcp_servers.runebook] # mine\n# 说明\ncommand = "old" # why\nenabled = true\n\n[z]\na = 1\n'
    text = f"{THEIRS}{table}".replace("\n", ending)
    for key, value in ENTRY.items():
        text = toml.put(text, (*PATH, key), value)
    assert value_at(toml.read(text), PATH) == {**ENTRY, "enabled": True}
    lines = text.split(ending)
    assert "\n" not in "".join(lines)
    assert lines[lines.index("[mcp_servers.runebook] # mine") + 1] == "# 说明"
    assert next(line for line in lines if line.startswith("command = ") and "程序" in line).endswith(" # why")
    assert lines[-3:] == ["[z]", "a = 1", ""]


@pytest.mark.parametrize(
    ("table", "rest"),
    [
        (
            '[mcp_servers.runebook]\na = "a"\n[mcp_servers.runebook.env]\nA = "1"\n\n# 下\n[z]\na = 1\n',
            "\n# 下\n[z]\na = 1\n",
        ),
        ('[mcp_servers.runebook]\na = "a"\n\n[z]\na = 1\n[mcp_servers.runebook.env]\nA = "1"\n', "\n[z]\na = 1\n"),
        ('[mcp_servers.runebook]\na = "a"\n# 完', "# 完"),
        ("[mcp_servers.runebook]\n[mcp_servers.runebooks]\na = 1\n", "[mcp_servers.runebooks]\na = 1\n"),
    ],
    ids=repr,
)
def test_table_leaves_with_the_tables_below_it_and_nothing_else(table: str, rest: str) -> None:
    assert toml.remove(f"{THEIRS}\n{table}", PATH) == f"{THEIRS}{rest}"


def test_inline_table_leaves_with_its_line() -> None:
    text = '[mcp_servers]\nother = {command = "x"}\nrunebook = {command = "y", args = ["serve"]}\n'
    assert toml.remove(text, PATH) == '[mcp_servers]\nother = {command = "x"}\n'


@pytest.mark.parametrize("text", ["model = ", "mcp_servers = 1", "mcp_servers = {a = 1}", "[[mcp_servers]]\n"])
def test_text_that_is_no_toml_or_holds_something_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        toml.put(text, PATH, ENTRY)


def test_name_that_is_no_bare_key_is_quoted() -> None:
    changed = toml.put("", ("mcp_servers", "我的 记忆"), ENTRY)
    assert changed.startswith('[mcp_servers."我的 记忆"]\n')
    assert toml.remove(changed, ("mcp_servers", "我的 记忆")) == ""
