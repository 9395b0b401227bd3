"""Where settings come from: one JSON file < environment (``RUNEBOOK_…``) < command-line flags.

What a setting means is said in the table beside this module, which only documentation and ``runebook config`` read.
Own code rather than pydantic-settings: that package alone costs 7 % of the server's cold start.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from memory_core.core.errors import ConfigInvalid
from memory_core.core.llm.client import PROVIDERS
from memory_core.core.text.word_table import word_table


class Section(BaseModel):
    """A frozen group of settings that refuses unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class HooksConfig(Section):
    """Answers to hosts' hooks; see docs/hooks.md."""

    session_start: bool = True
    user_prompt: bool = True
    post_read: bool = True
    pre_compact: bool = True
    session_end: bool = True
    stop: bool = False
    session_start_tokens: int = Field(2_000, ge=200, le=10_000)
    user_prompt_tokens: int = Field(1_200, ge=200, le=10_000)
    deadline_ms: int = Field(2_000, ge=20, le=60_000)
    patience_seconds: float = Field(10.0, ge=0.1, le=300.0)
    extract: bool = True


class TiersConfig(Section):
    """Short-term pages, mid-term segments, and the heat that promotes them."""

    short_term_capacity: int = Field(10, ge=1, le=1_000)
    mid_term_capacity: int = Field(2_000, ge=1, le=1_000_000)
    mid_term_similarity_threshold: float = Field(0.6, ge=0.0, le=3.0)
    keyword_weight: float = Field(1.0, ge=0.0, le=2.0)
    mid_term_heat_threshold: float = Field(5.0, gt=0.0, le=1_000_000.0)
    heat_alpha: float = Field(1.0, ge=0.0, le=100.0)
    heat_beta: float = Field(1.0, ge=0.0, le=100.0)
    heat_gamma: float = Field(1.0, ge=0.0, le=100.0)
    heat_tau_hours: float = Field(24.0, gt=0.0, le=87_600.0)
    long_term_knowledge_capacity: int = Field(100, ge=1, le=1_000_000)


class MaintenanceConfig(Section):
    """What is expired, condensed and archived, and when."""

    automatic: Literal["light", "full", "off"] = "light"
    every_hours: float = Field(24.0, gt=0.0, le=8_760.0)
    archive_days: int = Field(30, ge=1, le=36_500)
    delete_days: int = Field(60, ge=1, le=36_500)
    delete_logs: bool = False
    compression: bool = True
    compression_days: int = Field(90, ge=1, le=36_500)
    compression_accesses: int = Field(5, ge=1, le=1_000_000)
    compression_group: int = Field(3, ge=2, le=1_000)
    finished_tasks_days: int = Field(30, ge=0, le=36_500)


class ChatConfig(Section):
    """How ``runebook chat`` talks."""

    temperature: float = Field(0.7, ge=0.0, le=2.0)
    max_tokens: int = Field(1_500, ge=16, le=65_536)
    relationship: str = Field("friend", max_length=200)
    style: str = Field("", max_length=1_000)


class SharingConfig(Section):
    """``runebook serve --shared``."""

    idle_minutes: float = Field(10.0, gt=0.0, le=10_080.0)


_DEVICE = re.compile(r"con|prn|aux|nul|(?:com|lpt)[0-9]", re.IGNORECASE)


def _no_device(space: str) -> str:
    if _DEVICE.fullmatch(space):
        raise ValueError("Windows takes this name for a device")
    return space


_SPACE = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
SpaceName = Annotated[str, Field(pattern=_SPACE), AfterValidator(_no_device)]


def is_space(name: str) -> bool:
    """Whether a user or agent space can have this name."""
    return re.fullmatch(_SPACE, name) is not None and _DEVICE.fullmatch(name) is None


class IndexConfig(Section):
    """The vector index."""

    mode: Literal["auto", "exact", "chroma", "http"] = "auto"
    exact_below: int = Field(50_000, ge=1)
    url: str = "http://127.0.0.1:8000"
    tenant: str = ""
    database: str = ""


class EmbeddingConfig(Section):
    """The embedding model."""

    provider: Literal["bundled", "sentence-transformers", "none"] = "bundled"
    model: str = ""
    query_prompt: str = ""
    passage_prompt: str = ""
    device: Literal["cpu", "auto"] = "cpu"
    batch: int = Field(32, ge=1, le=512)
    wait_seconds: float = Field(5.0, ge=0.0, le=60.0)


class SearchConfig(Section):
    """What find does unless told otherwise."""

    rank: Literal["relevance", "balanced", "decay", "weighted"] = "balanced"
    cached_queries: int = Field(64, ge=0, le=1_000)
    floor: bool = True
    decay_lambda: float = Field(0.05, gt=0.0, le=10.0)
    rerank_model: str = ""
    rerank_candidates: int = Field(30, ge=2, le=100)
    trail: bool = True
    hot_limit: int = Field(20, ge=1, le=100)
    hot_seconds: float = Field(3_600.0, ge=0.0, le=86_400.0)


class RetrieveConfig(Section):
    """What retrieve does unless told otherwise."""

    token_budget: int = Field(4_000, ge=200, le=10_000)
    query_messages: int = Field(5, ge=1, le=50)
    intent_check: bool = True
    implicit_recall: bool = True
    implicit_recall_top_k: int = Field(3, ge=1, le=100)
    top_k_knowledge: int = Field(20, ge=1, le=100)
    knowledge_threshold: float = Field(0.01, ge=0.0, le=1.0)
    top_sessions: int = Field(5, ge=1, le=50)
    retrieval_queue_capacity: int = Field(7, ge=1, le=50)
    segment_similarity_threshold: float = Field(0.1, ge=0.0, le=1.0)
    page_similarity_threshold: float = Field(0.1, ge=0.0, le=1.0)
    recent_pages: int = Field(2, ge=0, le=20)
    daily_log_days: int = Field(2, ge=0, le=31)


class ProjectConfig(Section):
    """The project that memories belong to."""

    name: str = Field("", max_length=200)
    detect: bool = True
    private: bool = False


def _provider(name: str) -> str:
    known = ("none", *PROVIDERS, "sampling")
    if name not in known:
        raise ValueError(f"it should be one of {', '.join(known)}")
    return name


class LLMConfig(Section):
    """The language model that the server may call to extract memories. Keys come from the environment only."""

    provider: Annotated[str, AfterValidator(_provider)] = "none"
    model: str = ""
    base_url: str = ""
    structure: Literal["auto", "json_schema", "json_object", "text"] = "auto"
    max_tokens: int = Field(8_192, ge=256, le=65_536)
    deadline_seconds: float = Field(50.0, ge=1.0, le=3_600.0)
    retries: int = Field(3, ge=0, le=10)


class ExtractionConfig(Section):
    """How conversations become memories."""

    trigger: Literal["commit", "session_end", "heat"] = "commit"
    every_exchanges: int = Field(10, ge=0, le=1_000)
    idle_minutes: float = Field(30.0, ge=0.0, le=525_600.0)
    max_iterations: int = Field(3, ge=0, le=10)
    prompt_tokens: int = Field(12_000, ge=6_000, le=200_000)
    brief_tokens: int = Field(5_400, ge=3_400, le=10_000)
    language: str = "auto"


class LimitsConfig(Section):
    """Size limits of one request."""

    content_bytes: int = Field(262_144, ge=1_024)
    commit_bytes: int = Field(4_194_304, ge=4_096)


class _Spaces(Section):
    user_space: SpaceName
    agent_space: SpaceName


class HttpConfig(Section):
    """The HTTP and SSE server: who may reach it, and how much they may ask of it."""

    require_token: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = Field(4_194_304, ge=4_096, le=67_108_864)
    requests_per_minute: int = Field(600, ge=0, le=1_000_000)
    max_connections: int = Field(256, ge=8, le=65_536)
    max_sessions: int = Field(1_000, ge=1, le=100_000)
    session_idle_seconds: float = Field(1_800.0, ge=10.0, le=604_800.0)


class Config(Section):
    """All settings. ``home`` is expanded; relative paths are relative to the working directory."""

    home: Path = Path("~/.runebook")
    user_space: SpaceName = "default"
    agent_space: SpaceName = "default"
    private_mode: bool = False
    schema_dirs: tuple[Path, ...] = ()
    watch: Literal["auto", "off"] = "auto"
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

    @property
    def root(self) -> Path:
        """``home`` with ``~`` expanded, absolute."""
        return self.home.expanduser().absolute()

    def with_spaces(self, user_space: str, agent_space: str) -> Config:
        """The same settings for another user and agent.

        Raises:
            ConfigInvalid: If a space cannot be a folder name.
        """
        try:
            _Spaces(user_space=user_space, agent_space=agent_space)
        except ValidationError as error:
            raise ConfigInvalid(
                f"{user_space!r} and {agent_space!r} cannot both name spaces.",
                hint="A space is 1 to 64 letters, digits, '-' and '_', and begins with a letter or digit.",
            ) from error
        return self.model_copy(update={"user_space": user_space, "agent_space": agent_space})


ENV_PREFIX = "RUNEBOOK_"
CONFIG_NAME = "config.json"


def settings() -> Iterator[tuple[str, Any, str]]:
    """Every setting as (dotted name, default, description), in declaration order."""
    described = word_table(__file__)
    for dotted, default in _defaults():
        yield dotted, default, described[dotted]


def _defaults(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, info in model.model_fields.items():
        if isinstance(info.default, Section):
            yield from _defaults(type(info.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info.default


def environment_name(dotted: str) -> str:
    """The variable that sets ``index.mode``: ``RUNEBOOK_INDEX_MODE``."""
    return ENV_PREFIX + dotted.replace(".", "_").upper()


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
    overrides: dict[str, Any] = {}
    known = [dotted for dotted, _ in _defaults()]
    for dotted in known:
        raw = environment.get(environment_name(dotted))
        if raw:  # hosts pass on variables that were left empty
            _set(overrides, dotted, _decoded(dotted, raw))
    hint = f"Correct or remove it. Settings are: {', '.join(known)}."
    for dotted, value in (flags or {}).items():
        if dotted not in known:
            raise ConfigInvalid(f"there is no setting '{dotted}'.", hint=hint)
        if value is not None:
            _set(overrides, dotted, _decoded(dotted, value))
    home = _expanded(Path(str(overrides.get("home", Config.model_fields["home"].default))))
    named = path or (Path(environment["RUNEBOOK_CONFIG"]) if environment.get("RUNEBOOK_CONFIG") else None)
    values = _read(_expanded(named), required=True) if named else _read(home / CONFIG_NAME, required=False)
    merged = _merged(values, overrides)
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        dotted = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigInvalid(f"there is no setting '{dotted}'.", hint=hint) from None
        raise ConfigInvalid(f"setting '{dotted}': {first['msg']}.", hint=hint) from None
    for directory in (config.home, *config.schema_dirs, *config.prompt_dirs):
        _expanded(directory)
    return config


def example() -> str:
    """The text of ``config.example.json``: every setting at its default."""
    return json.dumps(Config().model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


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


def _decoded(dotted: str, raw: Any) -> Any:
    paths, words = ("schema_dirs", "prompt_dirs"), ("secrets_allowed", "http.allowed_hosts", "http.allowed_origins")
    separator = os.pathsep if dotted in paths else "," if dotted in words else None
    if separator is None or not isinstance(raw, str):
        return raw
    if raw.lstrip().startswith("["):
        try:
            return json.loads(raw)
        except json.JSONDecodeError as error:
            raise ConfigInvalid(
                f"setting '{dotted}': {error.msg}.", hint=f"Write a JSON list, or the parts with {separator!r} between."
            ) from error
    return [part.strip() for part in raw.split(separator) if part.strip()]


def _set(target: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, name = dotted.split(".")
    for section in sections:
        target = target.setdefault(section, {})
    target[name] = value


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
