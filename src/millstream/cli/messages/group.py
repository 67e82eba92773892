"""`millstream group`: create, update, list, describe and delete consumer groups; their lag and resets."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.moment import EARLIEST, LATEST, OffsetSpec, duration_ms, durations_ms, moment_ms, time_text
from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value, confirm, print_usage
from millstream.client.blocking import BlockingClient
from millstream.client.routes import queue_of
from millstream.model.errors import NameRefused
from millstream.model.group import (
    DEFAULT_MAX_ATTEMPTS,
    MAX_GROUP_ATTEMPTS,
    ExponentialBackoff,
    FirstPosition,
    GroupConfig,
)
from millstream.protocol.remoting.administration.consumption import BrokerProgress

__all__ = ["create", "delete", "describe", "lag", "list_groups", "reset", "update"]


_Attempts = Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_GROUP_ATTEMPTS))]
_FIRST_POSITIONS = {EARLIEST: FirstPosition.FIRST, LATEST: FirstPosition.LAST}
_COLUMNS = ("group", "fifo", "max_attempts", "backoff", "first", "enabled")


def create(
    name: str,
    *,
    fifo: Annotated[bool, Parameter(negative="")] = False,
    lite_exclusive: Annotated[bool, Parameter(negative="")] = False,
    max_attempts: _Attempts = DEFAULT_MAX_ATTEMPTS,
    backoff: str | None = None,
    first: str = EARLIEST,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Create a consumer group.

    Parameters
    ----------
    name
        Letters, digits, _ - % |, at most 120 characters.
    fifo
        Deliver each message of a message group only after the one before it is acknowledged.
    lite_exclusive
        Let a lite topic have one reader of the group at a time; a new one takes it over.
    max_attempts
        Deliveries of one message before it goes to the dead-letter topic.
    backoff
        The waits before redeliveries: steps (1s,5s,1m; the last one repeats), or a curve (5s..2h*2).
    first
        Where it begins in a queue that it has not read: earliest, latest, or a time (2026-11-21T08:30, or 10m ago).
    """
    try:
        config = _with_first(
            _with_backoff(GroupConfig(name, fifo, max_attempts, lite_exclusive=lite_exclusive), backoff), first
        )
    except ValueError as error:
        return print_usage(str(error))
    with cluster(common) as client:
        client.create_group(config)
    _show(config, Printer(common.output))
    return ExitCode.DONE


def update(
    name: str,
    *,
    fifo: bool | None = None,
    max_attempts: _Attempts | None = None,
    backoff: str | None = None,
    first: str | None = None,
    enable: Annotated[bool | None, Parameter(name="--enable", negative="--disable")] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Change the given settings of a consumer group; the others stay.

    Parameters
    ----------
    name
        The group.
    fifo
        Whether it receives in order.
    max_attempts
        Deliveries of one message before it goes to the dead-letter topic.
    backoff
        The waits before redeliveries: steps (1s,5s,1m; the last one repeats), or a curve (5s..2h*2).
    first
        Where it begins in a queue that it has not read: earliest, latest, or a time.
    enable
        Whether it receives messages; --disable stops it, what is in flight can still be acknowledged.
    """
    with cluster(common) as client:
        config = client.describe_group(name)
        try:
            config = _with_backoff(config, backoff)
            config = config if first is None else _with_first(config, first)
        except ValueError as error:
            return print_usage(str(error))
        config = replace(
            config,
            fifo=config.fifo if fifo is None else fifo,
            max_attempts=config.max_attempts if max_attempts is None else max_attempts,
            enabled=config.enabled if enable is None else enable,
        )
        client.update_group(config)
    _show(config, Printer(common.output))
    return ExitCode.DONE


def list_groups(*, common: CommonOptions = CommonOptions()) -> int:
    """List the consumer groups."""
    with cluster(common) as client:
        groups = client.groups()
    rows = [tuple(_values(group).values()) for group in groups]
    Printer(common.output).listing(
        _COLUMNS, rows, empty="There are no groups. Create one: millstream group create NAME."
    )
    return ExitCode.DONE


def describe(name: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Show a consumer group: its settings, its connected members, and its progress.

    Parameters
    ----------
    name
        The group.
    """
    with cluster(common) as client:
        config = client.describe_group(name)
        members = client.group_members(name)
        queues = [item.progress for item in client.group_progress(name)]
    topics = sorted({item.topic for item in queues})
    lag, in_flight = sum(item.lag for item in queues), sum(item.in_flight for item in queues)
    lines = [f"{column.replace('_', ' '):<13}{value}" for column, value in _values(config).items()]
    lines.append(f"{'topics':<13}{', '.join(topics) or 'none yet'}")
    lines.append(f"{'lag':<13}{lag:,} messages, {in_flight:,} of them in flight")
    lines.append(f"{'members':<13}{', '.join(f'{one.client_id} ({one.protocol})' for one in members) or 'none now'}")
    values = {
        **_values(config),
        "topics": topics,
        "lag": lag,
        "in_flight": in_flight,
        "members": [one.client_id for one in members],
    }
    Printer(common.output).record(values, sentence="\n".join(lines))
    return ExitCode.DONE


def delete(name: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Delete a consumer group and its offsets; its dead letters stay.

    Parameters
    ----------
    name
        The group.
    """
    with cluster(common) as client:
        client.delete_group(name)
    Printer(common.output).record({"group": name, "deleted": True}, sentence=f"group {name} is deleted")
    return ExitCode.DONE


def _show(config: GroupConfig, printer: Printer) -> None:
    kind = "fifo" if config.fifo else "concurrent"
    words = f"group {config.name} is there: {kind}, {config.max_attempts} attempts, backoff {_backoff_text(config)}"
    printer.record(_values(config), sentence=words if config.enabled else f"{words}, switched off")


def _values(config: GroupConfig) -> dict[str, Value]:
    words = {position: word for word, position in _FIRST_POSITIONS.items()}
    first = words.get(config.first_position) or time_text(config.first_time_ms) or "1970"
    values = (config.name, config.fifo, config.max_attempts, _backoff_text(config), first, config.enabled)
    return dict(zip(_COLUMNS, values, strict=True))


def _backoff_text(config: GroupConfig) -> str:
    curve = config.exponential
    if curve is None:
        return ",".join(_length(step * 1000) for step in config.backoff_s)
    return f"{_length(curve.initial_ms)}..{_length(curve.longest_ms)}*{curve.multiplier:g}"


def _length(length_ms: int) -> str:
    for unit, size_ms in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if length_ms and length_ms % size_ms == 0:
            return f"{length_ms // size_ms}{unit}"
    return f"{length_ms}ms" if length_ms else "0s"


def _with_backoff(config: GroupConfig, text: str | None) -> GroupConfig:
    """The group with the backoff of the text; ValueError."""
    if text is None:
        return config
    if ".." in text:
        initial, _, rest = text.partition("..")
        longest, _, factor = rest.partition("*")
        curve = ExponentialBackoff(duration_ms(initial), duration_ms(longest), _factor(factor))
        return replace(config, exponential=curve)
    steps_ms = durations_ms(text)
    if any(step_ms % 1000 for step_ms in steps_ms):
        raise ValueError(f"The steps of {text!r} are not whole seconds; a curve (250ms..2h*2) may have parts of them.")
    return replace(config, backoff_s=tuple(step_ms // 1000 for step_ms in steps_ms), exponential=None)


def _factor(text: str) -> float:
    """The factor of a curve, 2 where none is named; ValueError."""
    if not re.fullmatch(r"(\d{1,9}(\.\d{1,9})?)?", text):
        raise ValueError(f"{text!r} is no factor of a backoff; write it as in 5s..2h*2")
    return float(text or 2)


def _with_first(config: GroupConfig, text: str) -> GroupConfig:
    """The group with the first position of the text; ValueError."""
    word = _FIRST_POSITIONS.get(text)
    if word is not None:
        return replace(config, first_position=word, first_time_ms=0)
    first_ms = moment_ms(text, time.time_ns() // 1_000_000)
    return replace(config, first_position=FirstPosition.TIME, first_time_ms=first_ms)


_LAG_COLUMNS = (
    "topic", "broker", "queue", "committed", "next_offset", "end", "lag", "ready", "in_flight", "oldest_s",
    "last_consumed",
)  # fmt: skip
_PLAN_COLUMNS = ("topic", "broker", "queue", "before", "after", "messages", "discarded")
"""`messages` come again (positive) or are passed over (negative)."""


def lag(
    name: str,
    *,
    topic: str | None = None,
    watch: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Show the lag of a group in each queue: messages that are not consumed, and the age of the oldest of them.

    Parameters
    ----------
    name
        The group.
    topic
        Of this topic only; without it of all in which the group has an offset.
    watch
        Show it again every so many seconds, until Ctrl-C.
    """
    with cluster(common) as client:
        while True:
            found = client.group_progress(name, topic)
            empty = f"Group {name} has no position yet; it has received nothing."
            Printer(common.output).listing(_LAG_COLUMNS, [_lag_row(item) for item in found], empty=empty)
            if watch is None:
                return ExitCode.DONE
            time.sleep(watch)


def reset(
    name: str,
    *,
    topic: str | None = None,
    to: str,
    queue: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    broker: str | None = None,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Reset a group's offsets in a topic. Shows what would change, and asks.

    Deliveries in flight there are discarded: they cannot be acknowledged any more, and come again if they lie behind
    the new offset.

    Parameters
    ----------
    name
        The group.
    topic
        The topic, or the light queue as `group lag` names it. A group that has a position in one alone needs none.
    to
        earliest, latest, an offset of each queue, a time (2026-11-21T08:30), or so long ago (10m).
    queue
        This queue only.
    broker
        This broker's queues only.
    yes
        Do not ask.
    """
    try:
        target = OffsetSpec.of(to)
    except ValueError as error:
        return print_usage(f"--to: {error}.")
    with cluster(common) as client:
        if topic is None:
            topics = sorted({item.progress.topic for item in client.group_progress(name)})
            if len(topics) != 1:
                words = f"Group {name} has a position in {len(topics)} topics; name one of them"
                return print_usage(f"--topic: {': '.join([words, *filter(None, [', '.join(topics)])])}.")
            (topic,) = topics
        plan = _plan(client, name, topic, target, queue, broker)
        printer = Printer(common.output)
        rows = [_plan_row(item, after) for item, after in plan]
        if not yes:
            _announce(rows, name)
            if not confirm():
                print("Nothing was changed. Add --yes to do it without being asked.", file=sys.stderr)
                return ExitCode.USAGE
        for item, after in plan:
            client.reset_offset(name, item, after)
    printer.listing(_PLAN_COLUMNS, rows, empty="")
    return ExitCode.DONE


def _plan(
    client: BlockingClient, name: str, topic: str, target: OffsetSpec, queue: int | None, broker: str | None
) -> list[tuple[BrokerProgress, int]]:
    """What is to be put where; QUEUE_NOT_FOUND where no queue fits the options."""
    queues = client.queues(topic)

    def after(item: BrokerProgress) -> int:
        held = item.progress
        queue = queue_of(queues, item.broker_name, held.queue_id)
        if queue is None:
            raise NameRefused("QUEUE_NOT_FOUND", f"{item.broker_name} has no queue {held.queue_id} of {topic!r}.")
        return target.in_queue(held.min_offset, held.max_offset, lambda time_ms: client.offset_by_time(queue, time_ms))

    plan = [
        (item, after(item))
        for item in client.group_progress(name, topic)
        if queue in (None, item.progress.queue_id) and broker in (None, item.broker_name)
    ]
    if not plan:
        words = (
            f"Topic {topic!r} has no queue {'of any number' if queue is None else queue} on {broker or 'any broker'}."
        )
        raise NameRefused("QUEUE_NOT_FOUND", words)
    return plan


def _plan_row(item: BrokerProgress, after: int) -> tuple[Value, ...]:
    held = item.progress
    before = held.committed
    return held.topic, item.broker_name, held.queue_id, before, after, held.next_offset - after, held.in_flight


def _announce(rows: list[tuple[Value, ...]], name: str) -> None:
    print(f"Group {name} would be put to:", file=sys.stderr)
    for _, broker, queue, before, after, _, discarded in rows:
        print(
            f"  {broker} queue {queue}: from {before} to {after}, {discarded} deliveries in flight discarded",
            file=sys.stderr,
        )


def _lag_row(item: BrokerProgress) -> tuple[Value, ...]:
    held = item.progress
    oldest_s = max(0, time.time_ns() // 1_000_000 - held.oldest_ms) // 1000 if held.oldest_ms else None
    return (
        held.topic,
        item.broker_name,
        held.queue_id,
        held.committed,
        held.next_offset,
        held.max_offset,
        held.lag,
        held.ready,
        held.in_flight,
        oldest_s,
        time_text(held.consumed_ms),
    )
