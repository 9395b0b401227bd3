"""Settings of hooks: what a host is told at which of its events, what is stored, and how long a host waits for it."""

from __future__ import annotations

from pydantic import Field

from memory_core.config.section import Section


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
        250, ge=20, le=60_000, description="A prompt waits no longer for its memories; what comes later is not given."
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
