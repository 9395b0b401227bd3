"""Settings: what can be set (``sections``), and where it comes from (``loading``)."""

from memory_core.config.hooks import HooksConfig
from memory_core.config.lifetime import ChatConfig, MaintenanceConfig, TiersConfig
from memory_core.config.loading import CONFIG_NAME, environment_name, example, load, settings
from memory_core.config.sections import (
    Config,
    EmbeddingConfig,
    ExtractionConfig,
    HttpConfig,
    IndexConfig,
    LimitsConfig,
    LLMConfig,
    ProjectConfig,
    RetrieveConfig,
    SearchConfig,
    is_space,
)
from memory_core.config.sharing import SharingConfig

__all__ = [
    "CONFIG_NAME",
    "ChatConfig",
    "Config",
    "EmbeddingConfig",
    "ExtractionConfig",
    "HooksConfig",
    "HttpConfig",
    "IndexConfig",
    "LLMConfig",
    "LimitsConfig",
    "MaintenanceConfig",
    "ProjectConfig",
    "RetrieveConfig",
    "SearchConfig",
    "SharingConfig",
    "TiersConfig",
    "environment_name",
    "example",
    "is_space",
    "load",
    "settings",
]
