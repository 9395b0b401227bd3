"""Features of a store beside committing, finding and reading; each may be taken out."""

from typing import Any

from memory_core.core.command import Arg, Argument
from memory_core.core.feature import Features, Slice

_UNDO = Argument(
    "undo", str | None, Arg(help='Alone: takes back this commit; "last" is your newest. Later changes stay.')
)
_FORGET = Argument(
    "forget",
    dict[str, Any] | None,
    Arg(
        help="Alone: takes out what is said of something. query or uris shows the places; the same with "
        "confirm: <their number> takes them out. include_conversations: false leaves messages."
    ),
)
#: Passes of upkeep run in this order.
FEATURES = Features(
    (
        Slice("undo", "memory_core.features.undo", ("undo",), arguments=(_UNDO,)),
        Slice("forgetting", "memory_core.features.forgetting", ("forget",), arguments=(_FORGET,)),
        Slice("purge", "memory_core.features.purge", ("purge",)),
        Slice("history", "memory_core.features.history", ("history", "diff"), ("pages",)),
        Slice("metrics", "memory_core.features.metrics", ("stats",), ("pages",)),
        Slice("redaction", "memory_core.features.redaction", adds=("cleaner",)),
        Slice("tool counts", "memory_core.features.tool_counts", adds=("learner",)),
        Slice("procedural", "memory_core.features.procedural", adds=("learner",)),
        Slice("corrections", "memory_core.features.corrections", adds=("learner", "hints")),
        Slice(
            "rolling summary",
            "memory_core.features.rolling_summary",
            ("summary",),
            ("record_kinds", "removals", "opening"),
        ),
        Slice("daily logs", "memory_core.features.daily_logs", adds=("record_kinds", "opening")),
        Slice("tiers", "memory_core.features.tiers.segment", adds=("record_kinds", "turn_groups")),
        Slice(
            "tiers",
            "memory_core.features.tiers.promotion",
            adds=("extracted_lines", "after_commit", "follow_up", "passes"),
        ),
        Slice("upkeep", "memory_core.features.upkeep.passes", ("maintain",), ("passes", "background")),
        Slice("log archive", "memory_core.features.upkeep.log_archive", adds=("passes",)),
        Slice("core memories", "memory_core.features.upkeep.core_memories", adds=("passes",)),
        Slice("rolling passes", "memory_core.features.upkeep.rolling_pass", adds=("passes",)),
        Slice("archive", "memory_core.features.upkeep.archive", ("archive", "pin", "expire")),
        Slice("graph", "memory_core.features.graph", ("relate", "graph")),
        Slice("organize", "memory_core.features.organize", ("organize",)),
        Slice("review", "memory_core.features.review", ("review",), ("reviewer",)),
        Slice("recall trail", "memory_core.features.recall_trail", ("similar", "trail", "hot")),
        Slice("migrate", "memory_core.features.migrate", ("migrate",)),
        Slice("doctor", "memory_core.features.doctor", ("doctor",)),
        Slice("rebuild", "memory_core.features.rebuild", ("rebuild",)),
    )
)
