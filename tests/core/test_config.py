"""Settings: file, environment and flags, in that order; wrong ones are refused in words."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import CONFIG_NAME, Config, environment_name, example, load, settings
from memory_core.core.errors import ConfigInvalid
from memory_core.core.text.word_table import word_table


def write(path: Path, values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8", newline="\n")
    return path


def refusal(path: Path | None = None, environment: dict[str, str] | None = None, **flags: Any) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        load(path, environment or {}, {name.replace("__", "."): value for name, value in flags.items()})
    assert caught.value.hint
    return str(caught.value)


def test_without_anything_all_defaults_hold(tmp_path: Path) -> None:
    config = load(environment={"RUNEBOOK_HOME": str(tmp_path)})
    assert config == Config(home=tmp_path)
    assert load(environment={}, flags={"home": str(tmp_path)}) == config


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = write(
        tmp_path / "settings.json",
        {"index": {"mode": "exact", "exact_below": 7}, "search": {"rank": "weighted"}, "user_space": "from-file"},
    )
    environment = {"RUNEBOOK_CONFIG": str(file), "RUNEBOOK_INDEX_MODE": "chroma", "RUNEBOOK_SEARCH_RANK": "decay"}
    config = load(
        environment=environment, flags={"search.rank": "relevance", "home": str(tmp_path), "user_space": None}
    )
    assert (config.user_space, config.index.exact_below) == ("from-file", 7)
    assert config.index.mode == "chroma"
    assert config.search.rank == "relevance"


def test_file_in_the_home_folder_is_read_unless_another_is_named(tmp_path: Path) -> None:
    write(tmp_path / CONFIG_NAME, {"user_space": "home"})
    other = write(tmp_path / "other.json", {"agent_space": "other"})
    assert load(environment={"RUNEBOOK_HOME": str(tmp_path)}).user_space == "home"
    config = load(other, environment={"RUNEBOOK_HOME": str(tmp_path), "RUNEBOOK_CONFIG": str(tmp_path / "absent.json")})
    assert (config.user_space, config.agent_space) == ("default", "other")


def test_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / CONFIG_NAME).write_bytes(b'\xef\xbb\xbf{"user_space": "windows"}')
    assert load(environment={"RUNEBOOK_HOME": str(tmp_path)}).user_space == "windows"


#: Of these each setting takes one that is not its default.
NUMBERS = ("2", "0.5", "7", "90", "500", "5000", "70000")
WORDS = (
    "true",
    "false",
    "none",
    "off",
    "warn",
    "exact",
    "weighted",
    "single_pass",
    "heat",
    "automatic",
    "openai",
    "anyone",
    "text",
)
TEXTS = ("auto", "https://example.com/v1", "记忆", "postgresql://localhost/memories", "https://example.com", "a=b")


def another_value(home: Path, dotted: str, default: Any) -> str:
    """A value for one setting that is not its default, as the environment gives it."""
    for value in (*NUMBERS, *WORDS, *TEXTS):
        try:
            config = load(environment={environment_name(dotted): value, "RUNEBOOK_HOME": str(home)})
        except ConfigInvalid:
            continue
        if attribute(config, dotted) != default:
            return value
    raise AssertionError(f"no value for {dotted}")


def test_every_setting_can_come_from_the_environment_and_from_flags(tmp_path: Path) -> None:
    values = {
        dotted: another_value(tmp_path, dotted, default)
        for dotted, default, _ in settings()
        if dotted not in ("home", "owner_names")
    }
    values |= {"home": str(tmp_path), "secrets_allowed": "hunter2, 口令", "owner_names": "Ana, 安娜"}
    values["schema_dirs"] = os.pathsep.join(("/one", "/两"))
    config = load(environment={environment_name(dotted): value for dotted, value in values.items()})
    assert load(environment={}, flags=values) == config
    assert config.schema_dirs == (Path("/one"), Path("/两"))
    assert config.secrets_allowed == ("hunter2", "口令")
    assert config.owner_names == ("Ana", "安娜")
    assert [dotted for dotted, default, _ in settings() if attribute(config, dotted) == default] == []


def attribute(config: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        config = getattr(config, part)
    return config


def test_empty_variable_means_not_set(tmp_path: Path) -> None:
    empty = {environment_name(dotted): "" for dotted, _, _ in settings()} | {"RUNEBOOK_CONFIG": ""}
    assert load(environment=empty, flags={"home": str(tmp_path)}) == Config(home=tmp_path)


def test_home_is_expanded_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert load(environment={}).root == tmp_path / ".runebook"
    monkeypatch.chdir(tmp_path)
    assert load(environment={"RUNEBOOK_HOME": "memories"}).root == tmp_path / "memories"
    assert "~nobody-of-this-name" in refusal(environment={"RUNEBOOK_HOME": "~nobody-of-this-name/x"})
    assert "~nobody-of-this-name" in refusal(home=str(tmp_path), schema_dirs="~nobody-of-this-name/x")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"colour": 1}, "there is no setting 'colour'"),
        ({"index": {"speed": 1}}, "there is no setting 'index.speed'"),
        ({"index": "fast"}, "setting 'index' takes settings of its own, such as index.mode."),
        ({"index": {"mode": "quick"}}, "setting 'index.mode' takes 'auto', 'exact', 'chroma' or 'http', not quick."),
        ({"index": {"exact_below": 0}}, "setting 'index.exact_below' takes a whole number from 1, not 0."),
        ({"embedding": {"wait_seconds": 61}}, "'embedding.wait_seconds' takes a number from 0 up to 60, not 61."),
        ({"retrieve": {"token_budget": 199}}, "'retrieve.token_budget' takes a whole number from 200 up to 10,000"),
        ({"search": {"floor": "perhaps"}}, "setting 'search.floor' takes true or false, not perhaps."),
        ({"search": {"rerank_model": 3}}, "setting 'search.rerank_model' takes a text."),
        ({"chat": {"style": "x" * 1_001}}, "setting 'chat.style' takes at most 1,000 characters."),
        ({"owner_names": [3]}, "setting 'owner_names' takes a list."),
        ({"llm": {"provider": "none "}}, "setting 'llm.provider': it should be one of none, "),
        ({"store": {"url": "mysql://me:secret@db/x"}}, "setting 'store.url' takes postgresql://user@host/name"),
        ({"user_space": "../other"}, "setting 'user_space' takes 1 to 64 letters"),
        ({"user_space": "二"}, "setting 'user_space'"),
        ({"user_space": "anna\n"}, "setting 'user_space'"),
        ({"agent_space": ""}, "setting 'agent_space'"),
        ({"store": {"url": "postgresql://h/d\n"}}, "setting 'store.url'"),
        ({"http": {"oauth": {"issuer": "http://login.example.com"}}}, "beyond this machine it has to be https."),
        ({"http": {"oauth": {"issuer": "https://user@login.example.com"}}}, "without user, query or fragment"),
        ({"http": {"oauth": {"issuer": "https://login.example.com/a?b"}}}, "without user, query or fragment"),
        ({"http": {"max_body_bytes": 1}}, "setting 'http.max_body_bytes'"),
        ({"http": {"requests_per_minute": -1}}, "setting 'http.requests_per_minute'"),
        ({"http": {"max_sessions": 0}}, "setting 'http.max_sessions'"),
        ({"http": {"max_connections": 1}}, "setting 'http.max_connections'"),
        ({"schema_dirs": "one"}, "setting 'schema_dirs'"),
        ({"http": {"max_body_bytes": 1}}, "takes a whole number from 4,096 up to 67,108,864, not 1."),
        ({"tiers": {"mid_term_capacity": 0}}, "takes a whole number from 1 up to 1,000,000, not 0."),
        ({"hooks": {"patience_seconds": 10**400}}, "takes a number from 0.1 up to 300, not 1000"),
        ({"hooks": {"patience_seconds": 1234567.5}}, "takes a number from 0.1 up to 300, not 1234567.5."),
        ({"self": 1}, "there is no setting 'self'"),
        (["home"], "must hold one JSON object"),
    ],
)
def test_wrong_setting_in_the_file_is_named_alone_with_what_it_takes(tmp_path: Path, values: Any, words: str) -> None:
    said = refusal(write(tmp_path / "c.json", values))
    assert words in said
    assert "object" in words or said.endswith("All settings: runebook config.")
    assert "limits.commit_bytes" not in said
    assert "secret" not in said


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.2:80", "[::1]:443"])
def test_a_login_server_on_this_machine_may_speak_http(tmp_path: Path, host: str) -> None:
    issuer = f"http://{host}/tenant"
    file = write(tmp_path / "c.json", {"http": {"oauth": {"issuer": issuer}}})
    assert load(file, environment={}).http.oauth.issuer == issuer


def test_an_error_says_where_the_wrong_value_was_given_and_which_setting_may_be_meant(tmp_path: Path) -> None:
    home = str(tmp_path)
    file = write(tmp_path / "c.json", {"search": {"rank": "foo"}})
    assert f"remove it in {file}. " in refusal(file)
    assert "the variable RUNEBOOK_SEARCH_RANK" in refusal(file, {"RUNEBOOK_SEARCH_RANK": "bar"})
    assert "--set search.rank=…" in refusal(file, {"RUNEBOOK_SEARCH_RANK": "bar"}, search__rank="baz")
    assert "Did you mean search.rank?" in refusal(home=home, search__rnk="decay")
    assert "Did you mean" not in refusal(home=home, colour="1")


def test_a_list_is_written_as_json_or_with_its_separator(tmp_path: Path) -> None:
    listed = load(environment={}, flags={"home": str(tmp_path), "schema_dirs": '["/one", "/两, drei"]'})
    assert listed.schema_dirs == (Path("/one"), Path("/两, drei"))
    named = load(environment={"RUNEBOOK_HTTP_ALLOWED_HOSTS": "a.example, b.example"}, flags={"home": str(tmp_path)})
    assert named.http.allowed_hosts == ("a.example", "b.example")
    assert "Write a JSON list" in refusal(home=str(tmp_path), schema_dirs='["/one"')


def test_wrong_flag_is_named(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert "there is no setting 'colour'" in refusal(home=home, colour="1")
    assert "there is no setting 'index'" in refusal(home=home, index="x", index__mode="exact")
    assert "there is no setting 'home.x'" in refusal(home=home, home__x="1")
    assert "setting 'index.mode'" in refusal(home=home, index__mode="quick")
    assert "setting 'index.mode'" in refusal(environment={"RUNEBOOK_INDEX_MODE": "quick", "RUNEBOOK_HOME": home})


def test_file_that_is_named_must_be_there_and_be_json(tmp_path: Path) -> None:
    absent = tmp_path / "absent.json"
    assert "does not exist" in refusal(absent)
    assert "does not exist" in refusal(environment={"RUNEBOOK_CONFIG": str(absent)})
    assert "cannot be read" in refusal(tmp_path)
    broken = tmp_path / "broken.json"
    broken.write_text('{\n  "index": {\n', encoding="utf-8", newline="\n")
    assert "is not JSON: line 3" in refusal(broken)
    broken.write_bytes(b'{"user_space": "\xff"}')
    assert "cannot be read" in refusal(broken)


def test_example_holds_every_setting_at_its_default(tmp_path: Path) -> None:
    file = tmp_path / "config.example.json"
    file.write_text(example(), encoding="utf-8", newline="\n")
    assert load(file, environment={}) == Config()
    values = json.loads(example())
    for dotted, _, description in settings():
        node: Any = values
        for part in dotted.split("."):
            node = node[part]
        assert description.endswith(".")
    assert list(word_table(inspect.getfile(Config))) == [dotted for dotted, _, _ in settings()]
