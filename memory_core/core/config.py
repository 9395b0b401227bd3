"""Where settings come from: one JSON file < environment (``RUNEBOOK_…``) < command-line flags.

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


class Section(BaseModel):
    """A frozen group of settings that refuses unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class HooksConfig(Section):
    """Answers to hosts' hooks; see docs/hooks.md."""

    session_start: bool = Field(
        True, description="At a session's start give the profile, the directory, what always holds and the summary."
    )
    user_prompt: bool = Field(True, description="With each prompt give the memories that bear on it.")
    post_read: bool = Field(True, description="With a skill that was read give what is known of it.")
    pre_compact: bool = Field(True, description="Store the conversation before the host compresses it.")
    session_end: bool = Field(True, description="Store the conversation when its session ends.")
    stop: bool = Field(False, description="Store what is new after each answer, too.")
    session_start_tokens: int = Field(2_000, ge=200, le=10_000, description="Tokens given at a session's start.")
    user_prompt_tokens: int = Field(1_200, ge=200, le=10_000, description="Tokens given with a prompt.")
    deadline_ms: int = Field(
        2_000, ge=20, le=60_000, description="A prompt waits no longer for its memories; what comes later is not given."
    )
    patience_seconds: float = Field(
        10.0,
        ge=0.1,
        le=300.0,
        description="Any other event waits no longer; a conversation that is not stored by then is stored later.",
    )
    extract: bool = Field(
        True,
        description="A running server with a model of its own makes memories of a conversation as soon as it ended.",
    )


class TiersConfig(Section):
    """Short-term pages, mid-term segments, and the heat that promotes them."""

    short_term_capacity: int = Field(
        10, ge=1, le=1_000, description="Last exchanges of a session that stay as they are; older ones join segments."
    )
    mid_term_capacity: int = Field(
        2_000, ge=1, le=1_000_000, description="Segments of a user; beyond it the least used one is archived."
    )
    mid_term_similarity_threshold: float = Field(
        0.6, ge=0.0, le=3.0, description="An exchange joins a segment from this on: cosine plus overlap of keywords."
    )
    keyword_weight: float = Field(1.0, ge=0.0, le=2.0, description="Weight of the overlap of keywords in it.")
    mid_term_heat_threshold: float = Field(
        5.0, gt=0.0, le=1_000_000.0, description="Heat from which the unread exchanges of a segment become memories."
    )
    heat_alpha: float = Field(1.0, ge=0.0, le=100.0, description="Heat of one visit, a retrieval from the segment.")
    heat_beta: float = Field(1.0, ge=0.0, le=100.0, description="Heat of one interaction, an exchange that joined.")
    heat_gamma: float = Field(1.0, ge=0.0, le=100.0, description="Heat of a visit just now; it fades.")
    heat_tau_hours: float = Field(
        24.0, gt=0.0, le=87_600.0, description="Hours in which that fades to 37 %: exp(-hours / tau)."
    )
    long_term_knowledge_capacity: int = Field(
        100,
        ge=1,
        le=1_000_000,
        description="Facts, and pieces of assistant knowledge, that were made automatically; beyond it those used "
        "least are archived. What was stored explicitly, or is pinned, does not count.",
    )


class MaintenanceConfig(Section):
    """What is expired, condensed and archived, and when."""

    automatic: Literal["light", "full", "off"] = Field(
        "light",
        description="What a running server does by itself: light archives what expired, is done or old; full also "
        "compresses and asks the model; off leaves all to runebook maintain.",
    )
    every_hours: float = Field(24.0, gt=0.0, le=8_760.0, description="How often it does so.")
    archive_days: int = Field(
        30, ge=1, le=36_500, description="Age from which logs of days are summarised, and what matters is promoted."
    )
    delete_days: int = Field(60, ge=1, le=36_500, description="Age from which their raw text is moved to the archive.")
    delete_logs: bool = Field(False, description="Delete it for good then, instead; history keeps it until a purge.")
    compression: bool = Field(True, description="Condense memories that nobody uses; the originals are archived.")
    compression_days: int = Field(90, ge=1, le=36_500, description="Days without use from which a memory may be.")
    compression_accesses: int = Field(
        5, ge=1, le=1_000_000, description="Uses in all that keep a memory from being condensed."
    )
    compression_group: int = Field(3, ge=2, le=1_000, description="Least memories of one type that are condensed.")
    finished_tasks_days: int = Field(
        30, ge=0, le=36_500, description="Days after which a task that is done or cancelled is archived."
    )


class ChatConfig(Section):
    """How ``runebook chat`` talks."""

    temperature: float = Field(0.7, ge=0.0, le=2.0, description="Temperature of the answers.")
    max_tokens: int = Field(1_500, ge=16, le=65_536, description="Most tokens of one answer.")
    relationship: str = Field("friend", max_length=200, description="What the assistant is to the user.")
    style: str = Field("", max_length=1_000, description="A hint at the style of the answers.")


class SharingConfig(Section):
    """``runebook serve --shared``."""

    idle_minutes: float = Field(
        10.0,
        gt=0.0,
        le=10_080.0,
        description="The background server that hosts share ends by itself so long after the last one left.",
    )


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

    mode: Literal["auto", "exact", "chroma", "http"] = Field(
        "auto",
        description="auto scans exactly while a space is small and uses Chroma when it is large; "
        "exact never uses Chroma; chroma always does; http keeps vectors in a Chroma server or Chroma Cloud.",
    )
    exact_below: int = Field(
        50_000, ge=1, description="In auto mode, vectors a space may have before Chroma takes over."
    )
    url: str = Field(
        "http://127.0.0.1:8000",
        description="In http mode, address of the Chroma server (chroma run), or https://api.trychroma.com; "
        "a key is taken from the environment variable CHROMA_API_KEY.",
    )
    tenant: str = Field("", description="In http mode, the tenant; needed by Chroma Cloud, empty is the server's own.")
    database: str = Field(
        "", description="In http mode, the database; needed by Chroma Cloud, empty is the server's own."
    )


class EmbeddingConfig(Section):
    """The embedding model."""

    provider: Literal["bundled", "sentence-transformers", "none"] = Field(
        "bundled",
        description="bundled is a multilingual model inside the install, offline; sentence-transformers is any model "
        "of that library (pip install 'runebook[sentence-transformers]'); none searches by words only.",
    )
    model: str = Field(
        "", description="For sentence-transformers: the model's name on its hub, or a local folder; required there."
    )
    query_prompt: str = Field(
        "",
        description="Put before each query, e.g. 'query: ' for the E5 family; empty is the model's own prompt, if any.",
    )
    passage_prompt: str = Field(
        "",
        description="Put before each stored text, e.g. 'passage: ' for the E5 family; empty is the model's own prompt, "
        "if any. Another one embeds everything anew.",
    )
    device: Literal["cpu", "auto"] = Field(
        "cpu", description="Where sentence-transformers computes; auto takes a GPU where there is one."
    )
    batch: int = Field(32, ge=1, le=512, description="Texts that sentence-transformers computes at once.")
    wait_seconds: float = Field(
        5.0,
        ge=0.0,
        le=60.0,
        description="How long a search may wait for the model and for vectors still missing "
        "before it answers by words alone and says so.",
    )


class SearchConfig(Section):
    """What find does unless told otherwise."""

    rank: Literal["relevance", "balanced", "decay", "weighted"] = Field(
        "balanced",
        description="relevance is the match alone; balanced lets salience and time since last use settle near ties; "
        "decay is match × salience × exp(−0.05·days); weighted is 0.6 match + 0.2 recency + 0.2 importance.",
    )
    cached_queries: int = Field(
        64, ge=0, le=1_000, description="Queries whose candidates each process keeps until something is committed."
    )
    floor: bool = Field(
        True, description="Leave out hits that match too weakly, so that nothing relevant gives nothing."
    )
    decay_lambda: float = Field(
        0.05,
        gt=0.0,
        le=10.0,
        description="How fast balanced and decay forget what is not used, a day: at 0.05 half is left after 14 days.",
    )
    rerank_model: str = Field(
        "",
        description="A cross-encoder that judges the best hits again, by name or local folder "
        "(pip install 'runebook[sentence-transformers]'); empty is off.",
    )
    rerank_candidates: int = Field(
        30, ge=2, le=100, description="Hits that the cross-encoder judges; each costs some milliseconds."
    )
    trail: bool = Field(
        True,
        description="Keep the words of queries in the trail (runebook trail); false keeps what was retrieved and when.",
    )
    hot_limit: int = Field(20, ge=1, le=100, description="Memories used most that count as hot.")
    hot_seconds: float = Field(
        3_600.0, ge=0.0, le=86_400.0, description="How long they stay the same; a changed or deleted one shows at once."
    )


class RetrieveConfig(Section):
    """What retrieve does unless told otherwise."""

    token_budget: int = Field(4_000, ge=200, le=10_000, description="Tokens a context pack may take.")
    query_messages: int = Field(5, ge=1, le=50, description="Last user messages that together are the query.")
    intent_check: bool = Field(True, description="Recall nothing for small talk, such as thanks or 你好.")
    implicit_recall: bool = Field(
        True, description="Recall for the first message of a session, and procedural memories with it."
    )
    implicit_recall_top_k: int = Field(
        3, ge=1, le=100, description="Memories recalled for the first message; lessons, cases and skills come on top."
    )
    top_k_knowledge: int = Field(20, ge=1, le=100, description="Memories recalled for a query at most.")
    knowledge_threshold: float = Field(0.01, ge=0.0, le=1.0, description="Least score of a recalled memory.")
    top_sessions: int = Field(5, ge=1, le=50, description="Earlier conversations that pages are taken from.")
    retrieval_queue_capacity: int = Field(
        7, ge=1, le=50, description="Pages (a message and its replies) of earlier conversations at most."
    )
    segment_similarity_threshold: float = Field(
        0.1, ge=0.0, le=1.0, description="Least score of a conversation's best turn."
    )
    page_similarity_threshold: float = Field(0.1, ge=0.0, le=1.0, description="Least score of a page's best turn.")
    recent_pages: int = Field(
        2, ge=0, le=20, description="Last pages of the conversation before, given at a session's first call."
    )
    daily_log_days: int = Field(
        2, ge=0, le=31, description="Days whose log is given at a session's first call, today included."
    )


class ProjectConfig(Section):
    """The project that memories belong to."""

    name: str = Field(
        "",
        max_length=200,
        description="The current project, e.g. github.com/acme/backend; empty finds it by detection.",
    )
    detect: bool = Field(
        True, description="Take the current project from the client's roots, else from the working directory."
    )
    private: bool = Field(
        False,
        description="New memories of a project, and its conversations with all that is learned from them, are private "
        "to it unless a commit says otherwise.",
    )


def _provider(name: str) -> str:
    known = ("none", *PROVIDERS, "sampling")
    if name not in known:
        raise ValueError(f"it should be one of {', '.join(known)}")
    return name


class LLMConfig(Section):
    """The language model that the server may call to extract memories. Keys come from the environment only."""

    provider: Annotated[str, AfterValidator(_provider)] = Field(
        "none",
        description="none leaves extraction to the client's own model; anthropic and openai (any compatible endpoint: "
        "Ollama, vLLM, llama.cpp) are called by the server; sampling asks the client's model over MCP.",
    )
    model: str = Field("", description="Name of the model; required by anthropic and openai.")
    base_url: str = Field(
        "",
        description="Endpoint, e.g. http://127.0.0.1:11434/v1; empty is "
        "ANTHROPIC_BASE_URL or OPENAI_BASE_URL, else the provider's own.",
    )
    structure: Literal["auto", "json_schema", "json_object", "text"] = Field(
        "auto",
        description="How answers are kept to a schema; auto tries the strongest form that the endpoint accepts.",
    )
    max_tokens: int = Field(8_192, ge=256, le=65_536, description="Most tokens of one answer.")
    deadline_seconds: float = Field(
        50.0,
        ge=1.0,
        le=3_600.0,
        description="Time that a commit may spend on the model, retries included; then the conversation waits.",
    )
    retries: int = Field(3, ge=0, le=10, description="Attempts after a 429, a 5xx, a timeout or a lost connection.")


class ExtractionConfig(Section):
    """How conversations become memories."""

    trigger: Literal["commit", "session_end", "heat"] = Field(
        "commit",
        description="When: commit is as conversations are recorded; session_end when one has been idle; heat when a "
        "segment of it is used so much that its pages are promoted.",
    )
    every_exchanges: int = Field(
        10,
        ge=0,
        le=1_000,
        description="With trigger commit, new exchanges of a session that wait for each other, so that a model is not "
        "asked about each; the first commit of a session does not wait. 0 never waits.",
    )
    idle_minutes: float = Field(
        30.0,
        ge=0.0,
        le=525_600.0,
        description="Time without a message after which a session has ended, and what waits of it is extracted at the "
        "next commit or by runebook maintain.",
    )
    max_iterations: int = Field(3, ge=0, le=10, description="Rounds of reading that the model may take.")
    prompt_tokens: int = Field(
        12_000, ge=6_000, le=200_000, description="Tokens of one prompt; a longer conversation is taken in parts."
    )
    brief_tokens: int = Field(
        5_400, ge=3_400, le=10_000, description="Tokens of the brief that a client's own model is given."
    )
    language: str = Field(
        "auto", description="Language of extracted memories, e.g. English or 中文; auto follows the user's messages."
    )


class LimitsConfig(Section):
    """Size limits of one request."""

    content_bytes: int = Field(262_144, ge=1_024, description="Largest single memory, in bytes.")
    commit_bytes: int = Field(4_194_304, ge=4_096, description="Largest single commit, in bytes.")


class _Spaces(Section):
    user_space: SpaceName
    agent_space: SpaceName


class HttpConfig(Section):
    """The HTTP and SSE server: who may reach it, and how much they may ask of it."""

    require_token: bool = Field(
        False,
        description="Ask for a token even while none was issued; with a token in the store, and beyond loopback, one "
        "is always needed.",
    )
    allowed_hosts: tuple[str, ...] = Field(
        (), description="Names, with or without port, by which clients reach the server; needed beyond loopback."
    )
    allowed_origins: tuple[str, ...] = Field(
        (), description="Origins of web pages that may call, e.g. https://chat.example.com; they also get CORS headers."
    )
    max_body_bytes: int = Field(4_194_304, ge=4_096, le=67_108_864, description="Largest request body, in bytes.")
    requests_per_minute: int = Field(
        600, ge=0, le=1_000_000, description="Requests of one token, or of one address without a token; 0 is no limit."
    )
    max_connections: int = Field(256, ge=8, le=65_536, description="Open connections; more are told to come later.")
    max_sessions: int = Field(1_000, ge=1, le=100_000, description="Open sessions of streamable HTTP.")
    session_idle_seconds: float = Field(
        1_800.0, ge=10.0, le=604_800.0, description="After so long without a request a session is closed."
    )


class Config(Section):
    """All settings. ``home`` is expanded; relative paths are relative to the working directory."""

    home: Path = Field(Path("~/.runebook"), description="Folder that holds the memories.")
    user_space: SpaceName = Field("default", description="Space of the user's memories and sessions.")
    agent_space: SpaceName = Field("default", description="Space of the agent's memories.")
    private_mode: bool = Field(
        False, description="Nothing of what is said is kept: memories are found and read, commits are refused."
    )
    schema_dirs: tuple[Path, ...] = Field(
        (), description="Folders of YAML files that add memory types or override built-in ones."
    )
    watch: Literal["auto", "off"] = Field(
        "auto",
        description="auto notices within moments what people and other programs do to the files while a server runs; "
        "off looks when the store is opened, before a search and before a commit only.",
    )
    index: IndexConfig = Field(IndexConfig(), description="The vector index.")
    embedding: EmbeddingConfig = Field(EmbeddingConfig(), description="The embedding model.")
    search: SearchConfig = Field(SearchConfig(), description="Defaults of find.")
    retrieve: RetrieveConfig = Field(RetrieveConfig(), description="Defaults of retrieve.")
    project: ProjectConfig = Field(ProjectConfig(), description="The project that memories belong to.")
    extractor: Literal["react", "single_pass", "none"] = Field(
        "react",
        description="react reads before it decides; single_pass asks the model once; none only stores conversations.",
    )
    prompt_dirs: tuple[Path, ...] = Field(
        (), description="Folders of prompt templates that override the built-in ones; later folders win."
    )
    extraction: ExtractionConfig = Field(ExtractionConfig(), description="How conversations become memories.")
    llm: LLMConfig = Field(LLMConfig(), description="The language model that the server may call.")
    review: Literal["off", "automatic"] = Field(
        "off",
        description="automatic holds back what a model or a cue would remember until the owner accepts it "
        "(runebook review); what a person or agent stores explicitly takes effect at once.",
    )
    tiers: TiersConfig = Field(TiersConfig(), description="Short-term pages, mid-term segments, and their heat.")
    maintenance: MaintenanceConfig = Field(
        MaintenanceConfig(), description="What is expired, condensed and archived, and when."
    )
    chat: ChatConfig = Field(ChatConfig(), description="runebook chat.")
    limits: LimitsConfig = Field(LimitsConfig(), description="Size limits of one request.")
    secrets: Literal["refuse", "redact", "warn", "off"] = Field(
        "redact",
        description="What becomes of API keys, private keys, passwords, card numbers and the like at a commit: refuse "
        "the operation, redact them, warn in the receipt, or off.",
    )
    secrets_allowed: tuple[str, ...] = Field(
        (), description="Strings that look like secrets and are none, or their SHA-256."
    )
    http: HttpConfig = Field(HttpConfig(), description="The HTTP and SSE server.")
    hooks: HooksConfig = Field(HooksConfig(), description="Answers to hosts' hooks.")
    sharing: SharingConfig = Field(SharingConfig(), description="One server for several hosts.")

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


def settings(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every setting as (dotted name, default, description), in declaration order."""
    for name, info in model.model_fields.items():
        if isinstance(info.default, Section):
            yield from settings(type(info.default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info.default, info.description or ""


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
    for dotted, _, _ in settings():
        raw = environment.get(environment_name(dotted))
        if raw:  # hosts pass on variables that were left empty
            _set(overrides, dotted, _decoded(dotted, raw))
    known = [dotted for dotted, _, _ in settings()]
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
