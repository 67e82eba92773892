"""A subscription in the client's form and in the stored form. Pure.

Source: CloudEvents Subscriptions API 0.1: id, source, types, filters, sink, protocol, protocolsettings, config.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from millstream.model.errors import MillstreamError, Refused
from millstream.model.filter import MessageFilter
from millstream.model.group import check_group_name
from millstream.model.sql_filter import parse_filter
from millstream.model.topic import check_topic_name, is_system_topic
from millstream.proxy.http.webhooks.filters import condition_of_filters

__all__ = ["MAX_SINK_CHARACTERS", "MAX_SINK_HEADERS", "SubscriptionConfig", "WebhookSubscription", "read_subscription"]

MAX_SINK_CHARACTERS: Final = 2_048
"""Characters of a sink's URL at most."""

MAX_SINK_HEADERS: Final = 20
"""Headers of its own that a subscription may send at most."""

_PROTOCOL: Final = "HTTP"
_OWN_HEADERS: Final = frozenset(("host", "content-length", "transfer-encoding", "connection", "content-type", "expect"))
_MODES: Final = ("binary", "structured")
_PORTS: Final = {"http": 80, "https": 443}


class SubscriptionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the events come from. Without a group it is one of its own, `hook-ID`."""

    topic: str
    group: str = ""
    mode: str = "binary"


class ProtocolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Headers that are sent with every event."""

    headers: dict[str, str] = {}


class WebhookSubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One subscription. `owner` is the user who made it, `rate` how many events a minute its sink takes, 0 for any."""

    sink: str
    config: SubscriptionConfig
    id: str = ""
    source: str | None = None
    types: list[str] = []
    filters: list[Any] = []
    protocol: str = _PROTOCOL
    protocolsettings: ProtocolSettings = ProtocolSettings()
    owner: str = ""
    rate: int = 0

    @property
    def group(self) -> str:
        """The group whose messages they are."""
        return self.config.group or f"hook-{self.id}"

    def message_filter(self) -> MessageFilter:
        """Which messages of the topic it takes. Raises ILLEGAL_FILTER."""
        condition = condition_of_filters(self.source, self.types, self.filters)
        return parse_filter("TAG", "*") if condition is None else parse_filter("SQL92", condition)

    def encode(self) -> bytes:
        """As it is stored, and as clients read it."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, text: bytes) -> WebhookSubscription:
        """The subscription of a stored text. ValueError."""
        return msgspec.json.decode(text, type=cls)


def read_subscription(text: bytes, *, id: str, owner: str) -> WebhookSubscription:
    """The subscription that a client wants, under that id. Raises ILLEGAL_SUBSCRIPTION, ILLEGAL_FILTER."""
    try:
        wanted = msgspec.json.decode(text, type=WebhookSubscription)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _illegal(f"its JSON cannot be read: {str(error)[:300]}") from None
    if wanted.owner or wanted.rate or wanted.id not in ("", id):
        raise _illegal("id, owner and rate are not the client's to set")
    found = msgspec.structs.replace(wanted, id=id, owner=owner)
    try:
        check_topic_name(found.config.topic)
        check_group_name(found.group)
    except MillstreamError as error:
        raise _illegal(error.message.rstrip(".")) from None
    if is_system_topic(found.config.topic):
        raise _illegal(f"{found.config.topic!r} is one of the system's own topics")
    if found.config.mode not in _MODES:
        raise _illegal(f"config.mode is {found.config.mode[:40]!r}; it is one of {', '.join(_MODES)}")
    if found.protocol.upper() != _PROTOCOL:
        raise _illegal(f"protocol is {found.protocol[:40]!r}; {_PROTOCOL} is taken")
    _check_headers(found.protocolsettings.headers)
    _check_sink(found.sink)
    found.message_filter()
    return found


def _check_sink(sink: str) -> None:
    if len(sink) > MAX_SINK_CHARACTERS or not sink.isascii() or not sink.isprintable() or " " in sink:
        raise _illegal(f"sink is no URL of at most {MAX_SINK_CHARACTERS} printable ASCII characters")
    try:
        parts = urlsplit(sink)
        port = parts.port
    except ValueError as error:
        raise _illegal(f"sink: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None or parts.fragment or port == 0:
        raise _illegal(f"sink is {sink[:80]!r}; an http or https URL without a user and a fragment is taken")


def _check_headers(headers: dict[str, str]) -> None:
    if len(headers) > MAX_SINK_HEADERS:
        raise _illegal(f"protocolsettings has {len(headers)} headers; {MAX_SINK_HEADERS} are taken")
    for name, value in headers.items():
        is_name = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not is_name or name.lower() in _OWN_HEADERS or name.lower().startswith(("ce-", "webhook-")):
            raise _illegal(f"{name[:40]!r} is no header that a subscription can set")
        if not value.isascii() or not value.isprintable():
            raise _illegal(f"the header {name[:40]} has characters that are not printable ASCII")


def _illegal(words: str) -> Refused:
    return Refused("ILLEGAL_SUBSCRIPTION", f"The subscription is not legal: {words}.")
