"""Where a vector server is: its address, what it is asked for, and the key, checked before anything is sent.

The key comes from the environment only, and is sent over TLS or loopback only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from memory_core.core.config import IndexConfig
from memory_core.core.errors import ConfigInvalid

KEY_NAME = "CHROMA_API_KEY"
DEFAULT_TENANT = "default_tenant"
DEFAULT_DATABASE = "default_database"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the vectors go.

    Attributes:
        url: Of the server, without a path of the API.
        tenant: Of Chroma Cloud; a server of one's own has one.
        database: Of the tenant.
        key: Sent as ``x-chroma-token`` and, but to the cloud, as a bearer token; empty sends none.
    """

    url: str
    tenant: str = DEFAULT_TENANT
    database: str = DEFAULT_DATABASE
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot work or would show the key.

        Raises:
            ConfigInvalid: If the address is none, or the key would be sent unencrypted.
        """
        parts = urlsplit(self.url)
        hint = "Set index.url to an address like http://127.0.0.1:8000 or https://chroma.example.com."
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigInvalid("setting 'index.url' is no address of a server.", hint=hint)
        if parts.username is not None or parts.query or parts.fragment:
            raise ConfigInvalid(
                "setting 'index.url' holds a user, a query or a fragment.",
                hint=f"Give the address alone; a key belongs in the environment variable {KEY_NAME}.",
            )
        if self.key and parts.scheme == "http" and not self.is_loopback:
            raise ConfigInvalid(
                f"{KEY_NAME} would be sent to {parts.hostname} unencrypted.", hint="Use https in index.url."
            )
        if not self.key.isascii() or not self.key.isprintable() or " " in self.key:
            raise ConfigInvalid(f"{KEY_NAME} holds characters that no key has.", hint="Copy the key again.")
        if self.is_cloud and not self.key:
            raise ConfigInvalid(f"Chroma Cloud needs a key in {KEY_NAME}.", hint="Set it in the server's environment.")

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, where no proxy helps."""
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False

    @property
    def is_cloud(self) -> bool:
        """Whether it is Chroma Cloud, whose index is another."""
        return (urlsplit(self.url).hostname or "").endswith(".trychroma.com")

    @property
    def name(self) -> str:
        """What tells it from other places, for people and the catalog; holds no secret."""
        return f"{self.url.rstrip('/')} {self.tenant}/{self.database}"

    def headers(self) -> dict[str, str]:
        """Of every request."""
        found = {"content-type": "application/json", "user-agent": "runebook"}
        if self.key:
            found["x-chroma-token"] = self.key
            if not self.is_cloud:
                found["authorization"] = f"Bearer {self.key}"
        return found


def place_of(settings: IndexConfig, environment: Mapping[str, str]) -> Place:
    """The place that the settings and the environment name.

    Raises:
        ConfigInvalid: If it cannot be used; see ``Place``.
    """
    place = Place(
        settings.url,
        settings.tenant or DEFAULT_TENANT,
        settings.database or DEFAULT_DATABASE,
        environment.get(KEY_NAME, "").strip(),
    )
    if place.is_cloud and not (settings.tenant and settings.database):
        raise ConfigInvalid(
            "Chroma Cloud needs index.tenant and index.database.", hint="Both are shown on its page, beside the key."
        )
    return place
