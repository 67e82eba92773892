"""`millstream group lag` and `group reset`: how far a group is, and putting it elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.confirmation import confirm
from millstream.cli.messages.moment import time_text
from millstream.cli.messages.near_names import cluster
from millstream.cli.messages.place import OffsetSpec
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value, print_usage
from millstream.client.blocking import BlockingClient
from millstream.client.logic_queues import queue_of
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.consumption import BrokerProgress

__all__ = ["lag", "reset"]

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
    topic: str,
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
        The topic.
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
