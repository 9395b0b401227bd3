"""What can be set: one model per section, with defaults, bounds and descriptions; ``Config`` holds them all.

The settings table and ``config.example.json`` are generated from these models and checked by tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from memory_core.config.hooks import HooksConfig
from memory_core.config.lifetime import ChatConfig, MaintenanceConfig, TiersConfig
from memory_core.config.section import Section
from memory_core.config.sharing import SharingConfig
from memory_core.errors import ConfigInvalid

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


class LLMConfig(Section):
    """The language model that the server may call to extract memories. Keys come from the environment only."""

    provider: Literal["none", "anthropic", "openai", "sampling"] = Field(
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
