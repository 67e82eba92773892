"""`millstream topic`: create, list, describe, change and delete topics."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value, confirm
from millstream.cli.servers.tiered import copy_words
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import ClusterOperations
from millstream.client.routes import mappings_of
from millstream.model.errors import AccessRefused, MillstreamError, NameRefused
from millstream.model.topic import (
    MAX_QUEUES,
    ColumnAttributes,
    MessageType,
    TopicConfig,
    copy_attributes,
    is_system_topic,
)
from millstream.protocol.remoting.administration.cold_checks import ColumnStatus
from millstream.protocol.remoting.administration.static_topics import leaders

__all__ = ["CopyFormat", "TopicType", "create", "delete", "describe", "list_topics", "remap", "update"]

_NO_COPIES: Final = frozenset(("TIERED_STORAGE_OFF", "REQUEST_NOT_SUPPORTED"))
"""What brokers answer that have no copies: those without an object store, and RocketMQ's."""


class TopicType(Enum):
    """The types that a topic can be created with; case does not matter."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    PRIORITY = "priority"
    LITE = "lite"


class CopyFormat(Enum):
    """The formats of bodies that columns are read from."""

    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    RAW = "raw"


def create(
    name: str,
    *,
    type: TopicType = TopicType.NORMAL,
    queues: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_QUEUES))] = 4,
    batches: bool = False,
    compacted: bool = False,
    keep_hours: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    lite_minutes: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    columns: str | None = None,
    body_format: CopyFormat = CopyFormat.JSON,
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
    columns
        Copies its cold messages into a table with these columns, as in CREATE TABLE: "id BIGINT, name STRING"
        (cold.format, cold.schema).
    body_format
        The format of the bodies that they are read from (cold.body.format).
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
    if columns is not None:
        attributes |= copy_attributes(_read_columns(columns, body_format))
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
    queues: Annotated[int | None, Parameter(validator=Number(gte=1, lte=MAX_QUEUES))] = None,
    columns: str | None = None,
    body_format: CopyFormat = CopyFormat.JSON,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Give a topic more queues, or other columns, on every broker that has it.

    Clients and running jobs use new queues at once. Messages stay where they are. A topic never gets fewer queues, and
    its copy never fewer columns.

    Parameters
    ----------
    name
        The topic.
    queues
        How many queues it has then.
    columns
        Copies its cold messages into a table with these columns, as in CREATE TABLE: "id BIGINT, name STRING". Columns
        that its files have must be among them.
    body_format
        The format of the bodies that they are read from.
    """
    if queues is None and columns is None:
        raise NameRefused("ILLEGAL_TOPIC", f"Nothing of {name!r} is to change.", remedy="Give --queues or --columns.")
    changed: dict[str, Value] = {"topic": name}
    done: list[str] = []
    with cluster(common) as client:
        declared = None if columns is None else _read_columns(columns, body_format)
        if declared is not None:
            # Before anything is changed, and of all brokers: none is to have the columns that another one refuses.
            _check_change(client, name, declared)
        if queues is not None:
            client.add_queues(name, queues)
            changed["queues"] = queues
            done.append(f"has {queues} queues")
        if declared is not None:
            client.declare_columns(name, declared)
            changed["columns"] = columns
            done.append(f"is copied as {columns}")
    Printer(common.output).record(changed, sentence=f"topic {name} {' and '.join(done)}")
    return ExitCode.DONE


def _read_columns(columns: str, body_format: CopyFormat) -> ColumnAttributes:
    """What a topic is to declare. Raises COLUMNS_REFUSED, as far as the packages are here that tell."""
    with suppress(ImportError):
        from millstream.server.columns.declaration import parse_columns

        parse_columns(columns, body_format.value).decoder()
    return ColumnAttributes(columns, body_format.value)


def _check_change(client: BlockingClient, topic: str, declared: ColumnAttributes) -> None:
    """Refuse columns that the files of some broker do not fit, as the copy does later: COLUMNS_REFUSED."""
    # Not above: it has the parser of SQL, for which no other command about topics should wait.
    from millstream.server.columns.column_changes import check_change, read_fields

    new = read_fields(declared.columns)
    for broker in sorted(one.broker_name for one in client.route(topic).broker_datas):
        try:
            status = client.run(ClusterOperations(client.conversations).cold_status(broker))
        except (NameRefused, AccessRefused):
            # A broker without a master is none to change; who may not ask hears of it by the copy's status.
            continue
        except MillstreamError as error:
            if error.name not in _NO_COPIES:
                raise
            continue
        for accepted in (one.columns for one in status.copies if one.topic == topic and one.columns):
            check_change(read_fields(accepted), new)


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
    """Show what each queue of a topic holds, and how its copy as a table fares."""
    copies: dict[str, ColumnStatus] = {}
    with cluster(common) as client:
        ranges = client.queue_ranges(name)
        moving = leaders(mappings_of(client.route(name)))
        declared = client.describe_topic(name).column_copy
        if declared is not None:
            copies = _copies_of(client, name, sorted({item.broker_name for item in ranges}))
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
    printer = Printer(common.output)
    printer.listing(
        ("broker", "queue", "first_offset", "next_offset", "messages"), rows, empty=f"Topic {name} has no queues."
    )
    if declared is not None and printer.format == "table":
        print(f"Copied as a table: {declared.columns} ({declared.body_format})")
        for broker, copy in copies.items():
            print(f"  {broker}: {copy_words(copy)}")
    return ExitCode.DONE


def _copies_of(client: BlockingClient, topic: str, brokers: Sequence[str]) -> dict[str, ColumnStatus]:
    """The copies by broker, where one has an object store and can be asked."""
    found: dict[str, ColumnStatus] = {}
    for broker in brokers:
        with suppress(MillstreamError):
            status = client.run(ClusterOperations(client.conversations).cold_status(broker))
            found.update((broker, copy) for copy in status.copies if copy.topic == topic)
    return found


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
