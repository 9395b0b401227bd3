"""From settings to a client; an SDK is imported only for the provider in use, at its first request."""

from __future__ import annotations

from memory_core.config import LLMConfig
from memory_core.errors import ModelUnavailable
from memory_core.llm.client import LLMClient


def open_client(config: LLMConfig) -> LLMClient | None:
    """The client of ``llm.provider``; None where the server calls no model itself (``none``, ``sampling``).

    A missing key, package or server is no error yet: it is raised by ``complete``, so that conversations wait with
    that reason.

    Raises:
        ModelUnavailable: If the provider needs ``llm.model`` and there is none.
    """
    if config.provider in ("none", "sampling"):
        return None
    if not config.model.strip():
        raise ModelUnavailable(
            f"setting 'llm.model' is empty, and provider '{config.provider}' needs it.",
            hint="Name the model in llm.model, or set llm.provider to none.",
        )
    if config.provider == "anthropic":
        from memory_core.llm.anthropic import AnthropicClient

        return AnthropicClient(config.model, config.base_url, structure=config.structure, retries=config.retries)
    from memory_core.llm.openai import OpenAIClient

    return OpenAIClient(config.model, config.base_url, structure=config.structure, retries=config.retries)
