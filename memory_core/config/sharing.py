"""Settings of the server that several hosts of one machine share."""

from __future__ import annotations

from pydantic import Field

from memory_core.config.section import Section


class SharingConfig(Section):
    """``runebook serve --shared``."""

    idle_minutes: float = Field(
        10.0,
        gt=0.0,
        le=10_080.0,
        description="The background server that hosts share ends by itself so long after the last one left.",
    )
