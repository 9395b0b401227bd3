"""Where settings come from: one JSON file < environment (``RUNEBOOK_…``) < command-line flags.

What a setting means is said in the table beside this module, which only documentation, ``runebook config`` and
the page read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from memory_core.core.errors import ConfigInvalid
from memory_core.core.record import Fault, Record, RecordInvalid, Shaped, Within, hint_of
from memory_core.core.text.word_table import word_table


class HooksConfig(Record):
    """Answers to hosts' hooks; see docs/hooks.md."""

    session_start: bool = True
    user_prompt: bool = True
    post_read: bool = True
    pre_compact: bool = True
    session_end: bool = True
    stop: bool = False
    session_start_tokens: Annotated[int, Within(200, 10_000)] = 2_000
    user_prompt_tokens: Annotated[int, Within(200, 10_000)] = 1_200
    deadline_ms: Annotated[int, Within(20, 60_000)] = 1_000
    patience_seconds: Annotated[float, Within(0.1, 300.0)] = 10.0
    extract: bool = True


class TiersConfig(Record):
    """Short-term pages, mid-term segments, and the heat that promotes them."""

    short_term_capacity: Annotated[int, Within(1, 1_000)] = 10
    mid_term_capacity: Annotated[int, Within(1, 1_000_000)] = 2_000
    mid_term_similarity_threshold: Annotated[float, Within(0.0, 3.0)] = 0.6
    keyword_weight: Annotated[float, Within(0.0, 2.0)] = 1.0
    mid_term_heat_threshold: Annotated[float, Within(above=0.0, most=1_000_000.0)] = 5.0
    heat_alpha: Annotated[float, Within(0.0, 100.0)] = 1.0
    heat_beta: Annotated[float, Within(0.0, 100.0)] = 1.0
    heat_gamma: Annotated[float, Within(0.0, 100.0)] = 1.0
    heat_tau_hours: Annotated[float, Within(above=0.0, most=87_600.0)] = 24.0
    long_term_knowledge_capacity: Annotated[int, Within(1, 1_000_000)] = 100


class MaintenanceConfig(Record):
    """What is expired, condensed and archived, and when."""

    automatic: Literal["light", "full", "off"] = "light"
    every_hours: Annotated[float, Within(above=0.0, most=8_760.0)] = 24.0
    archive_days: Annotated[int, Within(1, 36_500)] = 30
    delete_days: Annotated[int, Within(1, 36_500)] = 60
    delete_logs: bool = False
    compression: bool = True
    compression_days: Annotated[int, Within(1, 36_500)] = 90
    compression_accesses: Annotated[int, Within(1, 1_000_000)] = 5
    compression_group: Annotated[int, Within(2, 1_000)] = 3
    finished_tasks_days: Annotated[int, Within(0, 36_500)] = 30


class ChatConfig(Record):
    """How ``runebook chat`` talks."""

    temperature: Annotated[float, Within(0.0, 2.0)] = 0.7
    max_tokens: Annotated[int, Within(16, 65_536)] = 1_500
    relationship: Annotated[str, Shaped(most_chars=200)] = "friend"
    style: Annotated[str, Shaped(most_chars=1_000)] = ""


class SharingConfig(Record):
    """``runebook serve --shared``."""

    idle_minutes: Annotated[float, Within(above=0.0, most=10_080.0)] = 10.0


_DEVICE = re.compile(r"con|prn|aux|nul|(?:com|lpt)[0-9]", re.IGNORECASE)


_SPACE = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z"
_SPACE_WORDS = "1 to 64 letters of a to z, digits, '-' and '_', with a letter or digit first"
SpaceName = Annotated[str, Shaped(_SPACE, words=_SPACE_WORDS)]


def is_space(name: str) -> bool:
    """Whether a user or agent space can have this name."""
    return re.fullmatch(_SPACE, name) is not None and _DEVICE.fullmatch(name) is None


#: A scope as RFC 6749 writes it.
_SCOPE = r"^[\x21\x23-\x5b\x5d-\x7e]+\Z"
_NO_BLANK = "a name without blanks"


class StoreConfig(Record):
    """Where memories are kept."""

    url: Annotated[str, Shaped(r"^(postgres(ql)?://.*)?\Z", words="postgresql://user@host/name, or nothing")] = ""


class IndexConfig(Record):
    """The vector index."""

    mode: Literal["auto", "exact", "chroma", "http"] = "auto"
    exact_below: Annotated[int, Within(1)] = 200_000
    url: str = "http://127.0.0.1:8000"
    tenant: str = ""
    database: str = ""


class EmbeddingConfig(Record):
    """The embedding model."""

    provider: Literal["bundled", "sentence-transformers", "none"] = "bundled"
    model: str = ""
    query_prompt: str = ""
    passage_prompt: str = ""
    device: Literal["cpu", "auto"] = "cpu"
    batch: Annotated[int, Within(1, 512)] = 32
    wait_seconds: Annotated[float, Within(0.0, 60.0)] = 5.0


class SearchConfig(Record):
    """What find does unless told otherwise."""

    rank: Literal["relevance", "balanced", "decay", "weighted"] = "balanced"
    cached_queries: Annotated[int, Within(0, 1_000)] = 64
    floor: bool = True
    decay_lambda: Annotated[float, Within(above=0.0, most=10.0)] = 0.05
    rerank_model: str = ""
    rerank_candidates: Annotated[int, Within(2, 100)] = 30
    trail: bool = True
    hot_limit: Annotated[int, Within(1, 100)] = 20
    hot_seconds: Annotated[float, Within(0.0, 86_400.0)] = 3_600.0


class RetrieveConfig(Record):
    """What retrieve does unless told otherwise."""

    token_budget: Annotated[int, Within(200, 10_000)] = 4_000
    query_messages: Annotated[int, Within(1, 50)] = 5
    intent_check: bool = True
    implicit_recall: bool = True
    implicit_recall_top_k: Annotated[int, Within(1, 100)] = 3
    top_k_knowledge: Annotated[int, Within(1, 100)] = 20
    knowledge_threshold: Annotated[float, Within(0.0, 1.0)] = 0.01
    top_sessions: Annotated[int, Within(0, 50)] = 0
    retrieval_queue_capacity: Annotated[int, Within(0, 100)] = 0
    segment_similarity_threshold: Annotated[float, Within(0.0, 1.0)] = 0.0
    page_similarity_threshold: Annotated[float, Within(0.0, 1.0)] = 0.0
    recent_pages: Annotated[int, Within(0, 20)] = 2
    daily_log_days: Annotated[int, Within(0, 31)] = 2


class ProjectConfig(Record):
    """The project that memories belong to."""

    name: Annotated[str, Shaped(most_chars=200)] = ""
    detect: bool = True
    private: bool = False


class LLMConfig(Record):
    """The language model that the server may call to extract memories. Keys come from the environment only."""

    provider: str = "none"
    command: tuple[str, ...] = ()
    calls_per_day: Annotated[int, Within(0, 100_000)] = 60
    model: str = ""
    base_url: str = ""
    structure: Literal["auto", "json_schema", "json_object", "text"] = "auto"
    max_tokens: Annotated[int, Within(256, 65_536)] = 8_192
    deadline_seconds: Annotated[float, Within(1.0, 3_600.0)] = 50.0
    retries: Annotated[int, Within(0, 10)] = 3

    def problem(self) -> tuple[str, str] | None:
        """An unknown provider, or a program that is not named."""
        if self.provider == "none":
            return None
        from memory_core.core.llm.client import COMMAND, PROVIDERS

        known = ("none", *PROVIDERS, COMMAND, "sampling")
        if self.provider not in known:
            return "provider", f"it should be one of {', '.join(known)}"
        if self.provider == COMMAND and not self.command:
            return "command", "provider 'command' needs it: claude-code, codex, gemini-cli, ollama, or a command line"
        return None


class ExtractionConfig(Record):
    """How conversations become memories."""

    trigger: Literal["commit", "session_end", "heat"] = "commit"
    every_exchanges: Annotated[int, Within(0, 1_000)] = 10
    idle_minutes: Annotated[float, Within(0.0, 525_600.0)] = 30.0
    max_iterations: Annotated[int, Within(0, 10)] = 3
    prompt_tokens: Annotated[int, Within(6_000, 200_000)] = 12_000
    brief_tokens: Annotated[int, Within(2_600, 10_000)] = 4_000
    language: str = "auto"


class LimitsConfig(Record):
    """Size limits of one request."""

    content_bytes: Annotated[int, Within(1_024)] = 262_144
    commit_bytes: Annotated[int, Within(4_096)] = 4_194_304
    commit_messages: Annotated[int, Within(100)] = 5_000


_ORIGIN = r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?"


def is_loopback(host: str) -> bool:
    """Whether a name or an address, without brackets, is this machine alone."""
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


#: In the place of an issuer's URL: the program's own authorization server.
OWN_ISSUER = "own"


class OAuthConfig(Record):
    """Login by OAuth 2.1 on the HTTP server; see docs/login.md."""

    issuer: str = ""
    url: str = ""
    audience: tuple[str, ...] = ()
    user_claim: Annotated[str, Shaped(r"^\S+\Z", most_chars=200, words=_NO_BLANK)] = "sub"
    user_spaces: tuple[str, ...] = ()
    groups_claim: Annotated[str, Shaped(r"^\S+\Z", most_chars=200, words=_NO_BLANK)] = "groups"
    group_spaces: tuple[str, ...] = ()
    read_scope: Annotated[str, Shaped(_SCOPE, words=_NO_BLANK)] = "memory:read"
    write_scope: Annotated[str, Shaped(_SCOPE, words=_NO_BLANK)] = "memory:write"
    client_id: str = ""
    keys_seconds: Annotated[float, Within(0.0, 3_600.0)] = 30.0
    access_minutes: Annotated[float, Within(1.0, 1_440.0)] = 60.0
    refresh_days: Annotated[float, Within(0.1, 365.0)] = 30.0
    registration: bool = True
    client_documents: bool = True

    def problem(self) -> tuple[str, str] | None:
        """An address that cannot be one, or would be spoken to in the clear; a user whose space is none."""
        for name in ("issuer", "url"):
            value = getattr(self, name)
            if not value or (name, value) == ("issuer", OWN_ISSUER):
                continue
            found = re.match(_ORIGIN, value)
            if found is None or (name == "url" and found.end() != len(value)):
                wanted = "https://memory.example.com" if name == "url" else "https://login.example.com/tenant, or own"
                return name, f"it should look like {wanted}"
            if (rest := value[found.end() :]) and (rest[0] != "/" or re.search(r"[\s?#]", rest)):
                return name, "it should look like https://login.example.com/tenant, without user, query or fragment"
            if found[1] == "http" and not is_loopback(found[2].lower().strip("[]")):
                return name, "beyond this machine it has to be https"
        for pair in self.user_spaces:
            if not is_space(pair.rpartition("=")[2]) or not pair.rpartition("=")[0]:
                return "user_spaces", f"{pair!r} should look like anna@example.com=anna"
        for pair in self.group_spaces:
            if not is_space(pair.rpartition("=")[2].removesuffix(":read")) or not pair.rpartition("=")[0]:
                return "group_spaces", f"{pair!r} should look like engineering=team, or engineering=team:read"
        return None


class HttpConfig(Record):
    """The HTTP and SSE server: who may reach it, and how much they may ask of it."""

    require_token: bool = False
    without_token: Literal["owner", "anyone"] = "owner"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: Annotated[int, Within(4_096, 67_108_864)] = 4_194_304
    requests_per_minute: Annotated[int, Within(0, 1_000_000)] = 600
    requests_at_once: Annotated[int, Within(1, 1_000)] = 3
    max_connections: Annotated[int, Within(8, 65_536)] = 256
    max_sessions: Annotated[int, Within(1, 100_000)] = 1_000
    session_idle_seconds: Annotated[float, Within(10.0, 604_800.0)] = 1_800.0
    drain_seconds: Annotated[float, Within(0.0, 3_600.0)] = 10.0
    oauth: OAuthConfig = OAuthConfig()


class Config(Record):
    """All settings. ``root`` is ``home``, expanded; relative paths are relative to the working directory."""

    home: Path = Path("~/.runebook")
    user_space: SpaceName = "default"
    agent_space: SpaceName = "default"
    owner_names: tuple[str, ...] = ()
    private_mode: bool = False
    schema_dirs: tuple[Path, ...] = ()
    watch: Literal["auto", "off"] = "auto"
    store: StoreConfig = StoreConfig()
    index: IndexConfig = IndexConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    search: SearchConfig = SearchConfig()
    retrieve: RetrieveConfig = RetrieveConfig()
    project: ProjectConfig = ProjectConfig()
    extractor: Literal["react", "single_pass", "none"] = "react"
    prompt_dirs: tuple[Path, ...] = ()
    extraction: ExtractionConfig = ExtractionConfig()
    llm: LLMConfig = LLMConfig()
    review: Literal["off", "automatic"] = "off"
    tiers: TiersConfig = TiersConfig()
    maintenance: MaintenanceConfig = MaintenanceConfig()
    chat: ChatConfig = ChatConfig()
    limits: LimitsConfig = LimitsConfig()
    secrets: Literal["refuse", "redact", "warn", "off"] = "redact"
    secrets_allowed: tuple[str, ...] = ()
    http: HttpConfig = HttpConfig()
    hooks: HooksConfig = HooksConfig()
    sharing: SharingConfig = SharingConfig()

    def problem(self) -> tuple[str, str] | None:
        """A space that cannot be a folder name."""
        devices = (name for name in ("user_space", "agent_space") if _DEVICE.fullmatch(getattr(self, name)))
        return next(((name, "Windows takes this name for a device") for name in devices), None)

    @property
    def root(self) -> Path:
        """``home`` with ``~`` expanded, absolute."""
        return self.home.expanduser().absolute()

    def with_spaces(self, user_space: str, agent_space: str) -> Config:
        """The same settings for another user and agent.

        Raises:
            ConfigInvalid: If a space cannot be a folder name.
        """
        if not (is_space(user_space) and is_space(agent_space)):
            raise ConfigInvalid(
                f"{user_space!r} and {agent_space!r} cannot both name spaces.",
                hint=f"A space is {_SPACE_WORDS}.",
            )
        names = self.owner_names if user_space == self.user_space else ()  # somebody else has another name
        return self.model_copy(update={"user_space": user_space, "agent_space": agent_space, "owner_names": names})


CONFIG_NAME = "config.json"
_COMMAND = "llm.command"
#: Values in words.
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}
#: Of a wrong value, so many characters are shown.
_GIVEN_CHARS = 40


def settings() -> Iterator[tuple[str, Any, str]]:
    """Every setting as (dotted name, default, description), in declaration order."""
    described = word_table(__file__)
    for dotted, default in _defaults():
        yield dotted, default, described[dotted]


def _defaults(record: type[Record] = Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in record.names():
        default = getattr(record, name)
        if isinstance(default, Record):
            yield from _defaults(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", default


def environment_name(dotted: str) -> str:
    """The variable that sets ``index.mode``: ``RUNEBOOK_INDEX_MODE``."""
    return "RUNEBOOK_" + dotted.replace(".", "_").upper()


def load(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """Merge defaults, the JSON file, the environment and flags.

    Args:
        path: The JSON file; None means ``$RUNEBOOK_CONFIG``, else ``<home>/config.json`` where it exists.
        environment: Variables; None means ``os.environ``.
        flags: Dotted names to values; None values are skipped.

    Raises:
        ConfigInvalid: If a file named explicitly is missing, or any value is unknown or out of range.
    """
    environment = os.environ if environment is None else environment
    flags = flags or {}
    file, values = settings_file(path, environment, flags)
    return merged(values, environment, flags, file)


def settings_file(
    path: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> tuple[Path, dict[str, Any]]:
    """The JSON file that ``load`` reads, and what it says; nothing where it need not be there.

    Raises:
        ConfigInvalid: If it is named explicitly and missing, or cannot be read.
    """
    home = _expanded(Path(str(_overrides(environment, flags).get("home", Config.home))))
    named = path or (Path(environment["RUNEBOOK_CONFIG"]) if environment.get("RUNEBOOK_CONFIG") else None)
    file = _expanded(named) if named else home / CONFIG_NAME
    return file, _read(file, required=named is not None)


def merged(
    values: Mapping[str, Any], environment: Mapping[str, str], flags: Mapping[str, Any], file: Path | None = None
) -> Config:
    """The settings that a file's values make with what goes over them; an error names the ``file``.

    Raises:
        ConfigInvalid: If any value is unknown or out of range.
    """
    if isinstance(model := values.get("llm"), dict) and "command" in model:  # one line, or a list of words
        values = {**values, "llm": {**model, "command": _decoded(_COMMAND, model["command"])}}
    try:
        config = Config.model_validate(_overlaid(values, _overrides(environment, flags)))
    except RecordInvalid as error:
        raise _refusal(error.faults[0], environment, flags, file) from None
    for directory in (config.home, *config.schema_dirs, *config.prompt_dirs):
        _expanded(directory)
    return config


def _overrides(environment: Mapping[str, str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """What goes over the file."""
    overrides: dict[str, Any] = {}
    known = [dotted for dotted, _ in _defaults()]
    for dotted in known:
        raw = environment.get(environment_name(dotted))
        if raw:  # hosts pass on variables that were left empty
            _set(overrides, dotted, _decoded(dotted, raw))
    for dotted, value in flags.items():
        if dotted not in known:
            raise _unknown(dotted)
        if value is not None:
            _set(overrides, dotted, _decoded(dotted, value))
    return overrides


def _unknown(dotted: str) -> ConfigInvalid:
    from difflib import get_close_matches

    near = get_close_matches(dotted, [name for name, _ in _defaults()], 1)
    meant = f"Did you mean {near[0]}? " if near else ""
    return ConfigInvalid(f"there is no setting '{dotted}'.", hint=f"{meant}All settings: runebook config.")


def _refusal(
    fault: Fault, environment: Mapping[str, str], flags: Mapping[str, Any], file: Path | None
) -> ConfigInvalid:
    """Which setting is wrong, what it takes, and where it was given."""
    names = [part for part in fault.location if isinstance(part, str)]
    dotted = ".".join(names)
    if fault.kind == "extra_forbidden":
        return _unknown(dotted)
    if fault.kind == "value_error":
        wrong = f"setting '{dotted}': {fault.message}"
    else:
        hint, marks = _annotated(dotted)
        wrong = f"setting '{dotted}' takes {_accepted(dotted, hint, marks)}"
        if hint in (bool, int, float) or get_origin(hint) is Literal:  # nobody's secret
            given = f"{fault.given:.10g}" if isinstance(fault.given, float) else str(fault.given)
            wrong += f", not {given[:_GIVEN_CHARS]}"
    if flags.get(dotted) is not None:
        place = f"Correct --{dotted}" if dotted == "home" else f"Correct --set {dotted}=…"
    elif environment.get(environment_name(dotted)):
        place = f"Correct or remove the variable {environment_name(dotted)}"
    else:
        place = f"Correct or remove it in {file or 'the settings file'}"
    return ConfigInvalid(f"{wrong}.", hint=f"{place}. All settings: runebook config.")


def _accepted(dotted: str, hint: Any, marks: tuple[Any, ...]) -> str:
    """The values of a setting, or of a section, in words."""
    if get_origin(hint) is Literal:
        *others, last = map(repr, get_args(hint))
        return f"{', '.join(others)} or {last}"
    if get_origin(hint) is tuple:
        return "a list"
    if isinstance(hint, type) and issubclass(hint, Record):
        return f"settings of its own, such as {dotted}.{hint.names()[0]}"
    for mark in marks:
        if isinstance(mark, Within):
            bounds = [f"from {mark.least:,.10g}"] if mark.least is not None else []
            bounds += [f"above {mark.above:,.10g}"] if mark.above is not None else []
            bounds += [f"up to {mark.most:,.10g}"] if mark.most is not None else []
            return " ".join([_KINDS[hint], *bounds])
        if isinstance(mark, Shaped):
            return mark.words or f"at most {mark.most_chars:,} characters"
    return _KINDS[hint]


def example() -> str:
    """The text of ``config.example.json``: every setting at its default."""
    return json.dumps(Config().as_dict(), indent=2, ensure_ascii=False) + "\n"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigInvalid(f"{str(path)!r}: {error}", hint="Write the folder out instead of using '~'.") from error


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if not required:
            return {}
        raise ConfigInvalid(f"the config file {path} does not exist.", hint="Create it or name another.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"the config file {path} cannot be read: {error}.", hint="Mend the file.") from error
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigInvalid(
            f"the config file {path} is not JSON: line {error.lineno}: {error.msg}.", hint="Mend that line."
        ) from error
    if not isinstance(values, dict):
        raise ConfigInvalid(f"the config file {path} must hold one JSON object.", hint="See config.example.json.")
    return values


def annotation(dotted: str) -> tuple[Any, Within | None]:
    """The type of a setting, and its bounds."""
    inner, marks = _annotated(dotted)
    return inner, next((mark for mark in marks if isinstance(mark, Within)), None)


def _annotated(dotted: str) -> tuple[Any, tuple[Any, ...]]:
    """The type of a setting, or of a section, and what else its annotation says."""
    hint: Any = Config
    for name in dotted.split("."):
        hint = hint_of(hint, name)
    if get_origin(hint) is not Annotated:
        return hint, ()
    inner, *marks = get_args(hint)
    return inner, tuple(marks)


def _decoded(dotted: str, raw: Any) -> Any:
    """A value as settings take it: of a list that is written in one line the parts."""
    hint, _ = annotation(dotted)
    if get_origin(hint) is not tuple or not isinstance(raw, str):
        return raw
    separator = " " if dotted == _COMMAND else os.pathsep if get_args(hint)[0] is Path else ","
    if raw.lstrip().startswith("["):
        try:
            return json.loads(raw)
        except json.JSONDecodeError as error:
            raise ConfigInvalid(
                f"setting '{dotted}': {error.msg}.", hint=f"Write a JSON list, or the parts with {separator!r} between."
            ) from error
    if dotted == _COMMAND:
        return _command_words(raw)
    return [part.strip() for part in raw.split(separator) if part.strip()]


def _command_words(line: str) -> list[str]:
    """The words of a command written as one line, as a shell of this system would part them."""
    import shlex

    try:
        if os.name != "nt":
            return shlex.split(line)
        return [word.strip('"') for word in shlex.split(line, posix=False)]  # a backslash parts folders there
    except ValueError as error:
        raise ConfigInvalid(
            f"setting '{_COMMAND}': {error}.", hint="Close the quotation marks, or write a JSON list of words."
        ) from error


def _set(target: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, name = dotted.split(".")
    for section in sections:
        target = target.setdefault(section, {})
    target[name] = value


def _overlaid(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    overlaid = dict(base)
    for name, value in over.items():
        below = overlaid.get(name)
        overlaid[name] = _overlaid(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return overlaid
