"""Light queues and bindings as records of a broker's route topic, which is compacted by key.

    queue/NAME      {"kind": "mqtt" | "share" | "amqp", "group": G, "expires_ms": MS?, "max_length": N?,
                    "overflow": "drop" | "reject"?}
    bind/NAME/ID    {"topic": T, "mqtt": FILTER} or {"topic": T, "amqp": {"type": KIND, "exchange": E, "key": K,
                    "arguments": {...}?, "also": [...]?}}

A record without a body takes back what the key had. Fields of other names are passed over. NAME is that of a light
queue; an ID is text of its owner's choice without blanks and control characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from millstream.model.errors import NameRefused
from millstream.model.light_queue import check_light_name
from millstream.model.routing.amqp_bindings import AmqpBinding
from millstream.model.routing.routes import LightQueueConfig, RouteBinding

__all__ = [
    "MAX_BINDING_ID_CHARACTERS",
    "RouteRecord",
    "binding_key",
    "decode_route",
    "encode_binding",
    "encode_queue",
    "queue_key",
]

MAX_BINDING_ID_CHARACTERS: Final = 128
"""Characters of a binding's id at most."""

_QUEUE: Final = "queue"
_BIND: Final = "bind"


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """What one record says of the light queue `name`: of the binding `binding_id`, or (None) of the queue itself.

    `value` is None where it is taken back.
    """

    name: str
    binding_id: str | None
    value: LightQueueConfig | RouteBinding | None


class _AmqpJson(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    exchange: str = ""
    key: str = ""
    arguments: dict[str, str | None] = {}
    also: list[_AmqpJson] = []


class _QueueJson(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    group: str
    expires_ms: int | None = None
    max_length: int | None = None
    overflow: str | None = None


class _BindingJson(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: str
    mqtt: str | None = None
    amqp: _AmqpJson | None = None


_decode_queue = msgspec.json.Decoder(LightQueueConfig).decode
_decode_binding = msgspec.json.Decoder(_BindingJson).decode
_encode = msgspec.json.Encoder().encode

_MAX_SHARED_CONFIGS: Final = 1000
"""There are few but for groups: those of sessions are all alike."""

_shared_configs: dict[bytes, LightQueueConfig] = {}


def queue_key(name: str) -> str:
    """The key of what is said of a light queue."""
    return f"{_QUEUE}/{name}"


def binding_key(name: str, binding_id: str) -> str:
    """The key of what is said of a binding."""
    return f"{_BIND}/{name}/{binding_id}"


def encode_queue(config: LightQueueConfig) -> bytes:
    """The body of a record that declares a light queue."""
    return _encode(_QueueJson(config.kind, config.group, config.expires_ms, config.max_length, config.overflow))


def encode_binding(binding: RouteBinding) -> bytes:
    """The body of a record that binds a light queue."""
    amqp = binding.amqp
    amqp_record = None if amqp is None else _amqp_json(amqp)
    return _encode(_BindingJson(binding.topic, binding.mqtt, amqp_record))


def decode_route(key: str, body: bytes) -> RouteRecord:
    """What a record says, checked. Raises ILLEGAL_ROUTE, ILLEGAL_TOPIC, ILLEGAL_GROUP."""
    kind, _, rest = key.partition("/")
    name, _, binding_id = rest.partition("/")
    if kind not in (_QUEUE, _BIND) or (kind == _BIND) is not bool(binding_id):
        raise _refusal(key, "it is none of queue/NAME and bind/NAME/ID")
    check_light_name(name)
    if len(binding_id) > MAX_BINDING_ID_CHARACTERS:
        raise _refusal(key, f"its id has more than {MAX_BINDING_ID_CHARACTERS} characters")
    try:
        if kind == _QUEUE:
            return RouteRecord(name, None, _config_of(body, name) if body else None)
        binding = _binding_of(_decode_binding(body)) if body else None
    except msgspec.DecodeError as error:
        raise _refusal(key, f"its value cannot be read: {error}") from None
    if binding is not None:
        binding.check()
    return RouteRecord(name, binding_id, binding)


def _config_of(body: bytes, name: str) -> LightQueueConfig:
    """What a body says, checked. Light queues that are alike and do not expire share it."""
    config = _shared_configs.get(body)
    if config is None:
        config = _decode_queue(body)
        config.check(name)
        if config.expires_ms is None and len(_shared_configs) < _MAX_SHARED_CONFIGS:
            _shared_configs[body] = config
    return config


def _binding_of(said: _BindingJson) -> RouteBinding:
    amqp = said.amqp
    if amqp is None:
        return RouteBinding(said.topic, said.mqtt)
    return RouteBinding(said.topic, said.mqtt, _amqp_of(amqp))


def _amqp_of(said: _AmqpJson) -> AmqpBinding:
    arguments = tuple(sorted(said.arguments.items(), key=lambda pair: pair[0]))
    return AmqpBinding(said.type, said.exchange, said.key, arguments, tuple(map(_amqp_of, said.also)))


def _amqp_json(binding: AmqpBinding) -> _AmqpJson:
    also = list(map(_amqp_json, binding.also))
    return _AmqpJson(binding.kind, binding.exchange, binding.key, dict(binding.arguments), also)


def _refusal(key: str, why: str) -> NameRefused:
    return NameRefused("ILLEGAL_ROUTE", f"The route {key[:200]!r} is refused: {why}.")
