"""A pop consumer in few words: it makes its handles of the answer's fields by itself, as RocketMQ's client does."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.command import RemotingCommand


@dataclass(frozen=True)
class Taken:
    """One delivery as a client sees it. `extra_info` has eight words."""

    body: str
    extra_info: str
    queue_id: int
    offset: int
    reconsume_times: int


def taken_of(answer: RemotingCommand, broker_name: str = "broker-a") -> list[Taken]:
    """The deliveries of an answer."""
    ext, body = answer.ext, answer.body or b"".join(answer.body_parts)
    starts = dict(_pairs(ext["startOffsetInfo"]))
    taken = []
    for record in iterate_records(body):
        message = decode_record(record)
        kind = "1" if message.topic.startswith("%RETRY%") else "0"
        start = starts.get(f"{kind}@{message.queue_id}")
        derived = (
            f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} {kind} {broker_name} "
            f"{message.queue_id} {message.queue_offset}"
        )
        info = message.properties.get("POP_CK", derived)
        taken.append(
            Taken(message.body.decode(), info, message.queue_id, message.queue_offset, message.reconsume_times)
        )
    return taken


def pop_fields(topic: str = "t", group: str = "g", **more: str) -> dict[str, str]:
    """The fields of a pop that waits for nothing."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "60000",
        "pollTime": "0", "bornTime": "1", "initMode": "0", **more,
    }  # fmt: skip


def delivery_fields(taken: Taken, topic: str = "t", group: str = "g", **more: str) -> dict[str, str]:
    """The fields of an acknowledgement, or with `invisibleTime` of a change of the invisible time."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": str(taken.queue_id), "offset": str(taken.offset),
        "extraInfo": taken.extra_info, **more,
    }  # fmt: skip


def changed(taken: Taken, answer: RemotingCommand) -> Taken:
    """The same delivery after a change of the invisible time."""
    words = taken.extra_info.split(" ")[:8]
    words[:4] = [str(taken.offset), answer.ext["popTime"], answer.ext["invisibleTime"], answer.ext["reviveQid"]]
    return Taken(taken.body, " ".join(words), taken.queue_id, taken.offset, taken.reconsume_times)


def _pairs(info: str) -> list[tuple[str, int]]:
    words = [item.split(" ") for item in info.split(";") if item]
    return [(f"{kind}@{queue}", int(offset)) for kind, queue, offset in words]
