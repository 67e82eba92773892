"""The AMQP 0-9-1 methods that open and close connections and channels."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.protocol.amqp.method_codec import (
    AmqpMethod,
    Bit,
    Long,
    LongText,
    Octet,
    Short,
    ShortText,
    Table,
    method,
)

__all__ = [
    "ChannelClose",
    "ChannelCloseOk",
    "ChannelFlow",
    "ChannelFlowOk",
    "ChannelOpen",
    "ChannelOpenOk",
    "ConnectionBlocked",
    "ConnectionClose",
    "ConnectionCloseOk",
    "ConnectionOpen",
    "ConnectionOpenOk",
    "ConnectionSecure",
    "ConnectionSecureOk",
    "ConnectionStart",
    "ConnectionStartOk",
    "ConnectionTune",
    "ConnectionTuneOk",
    "ConnectionUnblocked",
    "ConnectionUpdateSecret",
    "ConnectionUpdateSecretOk",
]


@method(10, 10)
@dataclass(frozen=True, slots=True)
class ConnectionStart(AmqpMethod):
    """The server offers its versions, mechanisms and languages."""

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = field(default_factory=dict)
    mechanisms: LongText = b"PLAIN"
    locales: LongText = b"en_US"


@method(10, 11)
@dataclass(frozen=True, slots=True)
class ConnectionStartOk(AmqpMethod):
    """The client chooses, and says who it is."""

    client_properties: Table = field(default_factory=dict)
    mechanism: ShortText = "PLAIN"
    response: LongText = b""
    locale: ShortText = "en_US"


@method(10, 20)
@dataclass(frozen=True, slots=True)
class ConnectionSecure(AmqpMethod):
    """The server asks for more of the login."""

    challenge: LongText = b""


@method(10, 21)
@dataclass(frozen=True, slots=True)
class ConnectionSecureOk(AmqpMethod):
    """The client's answer."""

    response: LongText = b""


@method(10, 30)
@dataclass(frozen=True, slots=True)
class ConnectionTune(AmqpMethod):
    """The server's limits; a heartbeat is in seconds."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@method(10, 31)
@dataclass(frozen=True, slots=True)
class ConnectionTuneOk(AmqpMethod):
    """What the client takes of them."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@method(10, 40)
@dataclass(frozen=True, slots=True)
class ConnectionOpen(AmqpMethod):
    """The client chooses its virtual host."""

    virtual_host: ShortText = "/"
    capabilities: ShortText = ""
    insist: Bit = False


@method(10, 41)
@dataclass(frozen=True, slots=True)
class ConnectionOpenOk(AmqpMethod):
    """The connection can be used."""

    known_hosts: ShortText = ""


@method(10, 50)
@dataclass(frozen=True, slots=True)
class ConnectionClose(AmqpMethod):
    """A side ends the connection; class and method are those that failed."""

    reply_code: Short = 200
    reply_text: ShortText = ""
    failed_class: Short = 0
    failed_method: Short = 0


@method(10, 51)
@dataclass(frozen=True, slots=True)
class ConnectionCloseOk(AmqpMethod):
    """The other side has understood."""


@method(10, 60)
@dataclass(frozen=True, slots=True)
class ConnectionBlocked(AmqpMethod):
    """RabbitMQ's: the server takes no messages for now."""

    reason: ShortText = ""


@method(10, 61)
@dataclass(frozen=True, slots=True)
class ConnectionUnblocked(AmqpMethod):
    """RabbitMQ's: the server takes messages again."""


@method(10, 70)
@dataclass(frozen=True, slots=True)
class ConnectionUpdateSecret(AmqpMethod):
    """RabbitMQ's: new credentials of the user."""

    new_secret: LongText = b""
    reason: ShortText = ""


@method(10, 71)
@dataclass(frozen=True, slots=True)
class ConnectionUpdateSecretOk(AmqpMethod):
    """RabbitMQ's: they hold."""


@method(20, 10)
@dataclass(frozen=True, slots=True)
class ChannelOpen(AmqpMethod):
    """Open a channel."""

    out_of_band: ShortText = ""


@method(20, 11)
@dataclass(frozen=True, slots=True)
class ChannelOpenOk(AmqpMethod):
    """The channel can be used."""

    channel_id: LongText = b""


@method(20, 20)
@dataclass(frozen=True, slots=True)
class ChannelFlow(AmqpMethod):
    """Ask the other side to stop sending content, or to go on."""

    active: Bit = True


@method(20, 21)
@dataclass(frozen=True, slots=True)
class ChannelFlowOk(AmqpMethod):
    """The answer."""

    active: Bit = True


@method(20, 40)
@dataclass(frozen=True, slots=True)
class ChannelClose(AmqpMethod):
    """A side ends the channel; class and method are those that failed."""

    reply_code: Short = 200
    reply_text: ShortText = ""
    failed_class: Short = 0
    failed_method: Short = 0


@method(20, 41)
@dataclass(frozen=True, slots=True)
class ChannelCloseOk(AmqpMethod):
    """The other side has understood."""
