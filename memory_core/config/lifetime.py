"""Settings of a memory's life: the tiers of conversations, maintenance, and talking with a memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from memory_core.config.section import Section


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
