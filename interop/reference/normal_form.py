"""Answers without what differs from run to run: times, places in the log, ports.

What is left out is looked at first: an offset message id must be one, a time must be of this day.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping
from typing import Any

from millstream.model.errors import MillstreamError
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import read_fastjson

__all__ = ["normal_answer", "normal_records"]

Json = Any

_DAY_MS = 86_400_000
_ID = re.compile(r"(?<![0-9A-Fa-f])[0-9A-F]{32}(?![0-9A-Fa-f])")
_SHOWN_CHARACTERS = 1000
_LOCALHOST_IN_ID = "7F000001"
_ADDRESS = re.compile(r"/?(?:127\.0\.0\.1|localhost):(\d+)")
_LOG_OFFSETS = frozenset({"indexLastUpdatePhyoffset"})
_WAITS = frozenset({"delayTime"})
_TOPICS_OF_BROKER = frozenset({"wipeTopicCount", "addTopicCount"})
_ANY_QUEUE = frozenset({"reviveQid"})
_UNORDERED = frozenset({"topicList", "consumerIdList", "connectionSet", "lockOKMQSet", "groupList"})


def normal_answer(answer: RemotingCommand, shows: str, ports: Mapping[int, str]) -> dict[str, Json]:
    """Code, fields and body of an answer; `ports` names the servers by their ports."""
    found: dict[str, Json] = {"code": answer.code}
    ext = {key: _field(key, value, ports) for key, value in sorted(answer.ext.items())}
    if ext:
        found["ext"] = ext
    if answer.body:
        found["body"] = _body(answer.body, shows, ports)
    return found


def normal_records(body: bytes, ports: Mapping[int, str]) -> list[Json]:
    """The messages of a body of records."""
    return [_record(bytes(record), ports) for record in iterate_records(body)]


def _record(raw: bytes, ports: Mapping[int, str]) -> dict[str, Json]:
    message = decode_record(raw)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "sysFlag": int(message.system_flag),
        "flag": message.flag,
        "bornTimestamp": _number(message.born_timestamp_ms),
        "bornHost": _text(f"{message.born_host.host}:{message.born_host.port}", ports),
        "storeTimestamp": _number(message.store_timestamp_ms),
        "storeHost": _text(f"{message.store_host.host}:{message.store_host.port}", ports),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": "<log offset>" if message.prepared_transaction_offset else 0,
        "properties": {key: _field(key, value, ports) for key, value in sorted(message.properties.items())},
        "body": message.body.decode("latin-1") if len(message.body) < 100 else f"<{len(message.body)} bytes>",
    }


def _body(body: bytes, shows: str, ports: Mapping[int, str]) -> Json:
    try:
        if shows == "records":
            return normal_records(body, ports)
        if shows == "json":
            return _value("", read_fastjson(body), ports)
    except (ValueError, MillstreamError) as error:
        return f"<not {shows}: {error}>"
    return _text(body.decode("latin-1"), ports)


def _field(key: str, value: str, ports: Mapping[int, str]) -> str:
    if key in _LOG_OFFSETS:
        return "<log offset>"
    if key == "recallHandle":
        return _text(base64.b64decode(value).decode(), ports)
    if key in _ANY_QUEUE:
        return "<queue>"
    if key in _TOPICS_OF_BROKER:
        return "<some>" if value != "0" else value
    if re.fullmatch(r"-?\d+", value):
        return str(_number(int(value)))
    return _text(value, ports)


def _value(key: str, value: Json, ports: Mapping[int, str]) -> Json:
    if isinstance(value, dict):
        pairs = [(_key(name, ports), _value(str(name), item, ports)) for name, item in value.items()]
        return dict(sorted(pairs, key=lambda pair: pair[0]))
    if isinstance(value, list):
        items = [_value("", item, ports) for item in value]
        return sorted(items, key=repr) if key in _UNORDERED or key.endswith("Set") else items
    if isinstance(value, str):
        return _field(key, value, ports)
    if key.endswith("Tps"):
        return "<rate>"
    if key in _WAITS:
        # How long depends on the machine, down to no millisecond at all.
        return "<a wait>" if isinstance(value, int) and 0 <= value < _DAY_MS else value
    if isinstance(value, int) and not isinstance(value, bool):
        return _number(value)
    return value


def _key(name: Json, ports: Mapping[int, str]) -> str:
    if isinstance(name, tuple):
        return ",".join(f"{key}={value}" for key, value in name)
    return _text(str(name), ports)


def _number(value: int) -> int | str:
    return "<now>" if abs(value - time.time() * 1000) < _DAY_MS else value


def _text(text: str, ports: Mapping[int, str]) -> str:
    if len(text) > _SHOWN_CHARACTERS:
        return f"<{len(text)} characters>"
    text = _ID.sub(lambda match: "<offset id>" if match[0].startswith(_LOCALHOST_IN_ID) else match[0], text)
    text = _ADDRESS.sub(lambda match: f"<{ports.get(int(match[1]), 'client')}>", text)
    return re.sub(r"\d{13}", lambda match: str(_number(int(match[0]))), text)
