"""`millstream topic`: create, list, describe, change and delete topics."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, confirm
from millstream.client.routes import mappings_of
from millstream.model.topic import MAX_QUEUES, MessageType, TopicConfig, is_system_topic
from millstream.protocol.remoting.administration.static_topics import leaders

__all__ = ["TopicType", "create", "delete", "describe", "list_topics", "remap", "update"]


class TopicType(Enum):
    """The types that a topic can be created with; case does not matter."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    PRIORITY = "priority"
    LITE = "lite"


def create(
    name: str,
    *,
    type: TopicType = TopicType.NORMAL,
    queues: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_QUEUES))] = 4,
    batches: bool = False,
    compacted: bool = False,
    keep_hours: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    lite_minutes: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    static: bool = False,
    brokers: str | None = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Create a topic.

    Parameters
    ----------
    name
        Letters, digits, _ - % |, at most 127 characters.
    type
        The messages that it accepts.
    queues
        How many queues it has.
    batches
        Takes batches that are stored as one record, and the bulk lane (queue.type=BatchCQ).
    compacted
        Only the last message of each key is kept (cleanup.policy=COMPACTION); every message needs a key.
    keep_hours
        How long its messages are kept, if not for the broker's own time (reserve.time).
    lite_minutes
        For type lite: how long after its last message a lite topic goes (lite.topic.expiration), at most 43,200.
    static
        The queues are those of the cluster and can be moved between brokers (topic remap); once more with a larger
        number it gets more queues.
    brokers
        With --static: the brokers that store the queues, separated by commas; all of them by default.
    """
    attributes: dict[str, str] = {}
    if batches:
        attributes["queue.type"] = "BatchCQ"
    if compacted:
        attributes["cleanup.policy"] = "COMPACTION"
    if keep_hours is not None:
        attributes["reserve.time"] = str(keep_hours)
    if lite_minutes is not None:
        attributes["lite.topic.expiration"] = str(lite_minutes)
    config = TopicConfig(name, MessageType(type.name), read_queues=queues, write_queues=queues, attributes=attributes)
    with cluster(common) as client:
        if static:
            client.create_static_topic(config, queues, None if brokers is None else _names(brokers))
        else:
            client.create_topic(config)
    Printer(common.output).record(
        {"topic": name, "type": type.value, "queues": queues},
        sentence=f"topic {name} is there: {type.value}, {queues} queues",
    )
    return ExitCode.DONE


def update(
    name: str,
    *,
    queues: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_QUEUES))],
    common: CommonOptions = CommonOptions(),
) -> int:
    """Give a topic more queues, on every broker that has it; clients and running jobs use them at once.

    Messages stay where they are. A topic never gets fewer queues.

    Parameters
    ----------
    name
        The topic.
    queues
        How many queues it has then.
    """
    with cluster(common) as client:
        client.add_queues(name, queues)
    Printer(common.output).record({"topic": name, "queues": queues}, sentence=f"topic {name} has {queues} queues")
    return ExitCode.DONE


def remap(name: str, *, brokers: str, common: CommonOptions = CommonOptions()) -> int:
    """Spread the queues of a static topic over brokers, while it is used; no message is moved.

    If an earlier run ended half way, this one finishes what it began.

    Parameters
    ----------
    name
        A topic that was created with --static.
    brokers
        The brokers that are to store its queues, separated by commas.
    """
    with cluster(common) as client:
        moved = client.remap_topic(name, _names(brokers))
    Printer(common.output).listing(
        ("queue", "broker"), sorted(moved.items()), empty=f"The queues of topic {name} are there already."
    )
    return ExitCode.DONE


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def list_topics(*, common: CommonOptions = CommonOptions()) -> int:
    """List the topics with their type, queues and attributes; not the system's own."""
    with cluster(common) as client:
        topics = client.topics()
    rows = [
        (
            topic.name,
            topic.message_type.value.lower(),
            topic.queues,
            ",".join(f"{name}={value}" for name, value in sorted(topic.attributes.items())),
        )
        for topic in topics
        if not topic.is_template and not is_system_topic(topic.name)
    ]
    Printer(common.output).listing(
        ("topic", "type", "queues", "attributes"),
        sorted(rows),
        empty="There are no topics. Create one: millstream topic create NAME.",
    )
    return ExitCode.DONE


def describe(name: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Show what each queue of a topic holds."""
    with cluster(common) as client:
        ranges = client.queue_ranges(name)
        moving = leaders(mappings_of(client.route(name)))
    rows = [
        (
            moving.get(item.range.queue_id) or item.broker_name,
            item.range.queue_id,
            item.range.min_offset,
            item.range.max_offset,
            item.range.max_offset - item.range.min_offset,
        )
        for item in ranges
    ]
    Printer(common.output).listing(
        ("broker", "queue", "first_offset", "next_offset", "messages"), rows, empty=f"Topic {name} has no queues."
    )
    return ExitCode.DONE


def delete(
    name: str,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Delete a topic and its messages; asks if it has some.

    Parameters
    ----------
    name
        The topic.
    yes
        Do not ask.
    """
    with cluster(common) as client:
        # What is the system's own is refused in any case.
        asks = not yes and not is_system_topic(name)
        stored = sum(held.range.max_offset - held.range.min_offset for held in client.queue_ranges(name)) if asks else 0
        if stored:
            messages = f"{stored:,} message{'' if stored == 1 else 's'}"
            print(f"Topic {name} has {messages}, which would be deleted with it.", file=sys.stderr)
            if not confirm():
                print("Nothing was deleted. Add --yes to do it without being asked.", file=sys.stderr)
                return ExitCode.USAGE
        client.delete_topic(name)
    Printer(common.output).record({"topic": name, "deleted": True}, sentence=f"topic {name} is deleted")
    return ExitCode.DONE
