"""`millstream consume`: show the messages of a topic, with or without a consumer group."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.moment import EARLIEST, OffsetSpec
from millstream.cli.messages.near_names import cluster
from millstream.cli.messages.shown_message import MessageFormat, body_of, details_of, values_of
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, print_usage
from millstream.client.blocking import BlockingClient
from millstream.client.values import BrokerQueueRange, QueueAddress
from millstream.model.errors import MessageRefused
from millstream.model.filter import FilterKind, MessageFilter
from millstream.model.message import StoredMessage
from millstream.model.operations import PullStatus
from millstream.model.sql_filter import parse_filter

__all__ = ["MessageView", "consume"]

_IDLE_WAIT_MS = 200
"""How long one queue is asked to wait for new messages, shared by all queues of the topic."""


def consume(
    topic: str,
    *,
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    start: Annotated[str, Parameter(name="--from")] = EARLIEST,
    filter: str | None = None,
    filter_sql: str | None = None,
    count: Annotated[int | None, Parameter(name=["--count", "-n"], validator=Number(gte=1))] = None,
    until_end: Annotated[bool, Parameter(negative="")] = False,
    wait: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    details: Annotated[bool, Parameter(negative="")] = False,
    format: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Show messages as they come.

    Examples: millstream consume orders --from 10m --filter "new || paid";
    millstream consume orders --until-end -o json;
    millstream consume orders -g billing --count 100 --format '{stored} {keys} {properties[region]} {body}'.

    Parameters
    ----------
    topic
        The topic.
    group
        Go on where this group stopped, and commit what was shown; without a group nothing is committed.
    start
        Where to start when the group has no offset yet: earliest, latest, an offset of each queue, a time
        (2026-11-21T08:30, UTC unless it names a zone), or so long ago (10m).
    filter
        Tags joined by ||; all messages without it.
    filter_sql
        A condition over the messages' properties in SQL92, instead of tags.
    count
        End after so many messages.
    until_end
        End when everything that is there now was shown.
    wait
        End after so many seconds without a new message: exit code 4 if --count was not reached.
    details
        Show id, place, time, tag, keys and properties too; -o json always has them.
    format
        Show each message as this text, with fields in braces: topic, queue, offset, message_id, offset_message_id,
        tag, keys, group, priority, properties, properties[NAME], born_ms, stored_ms, stored, size, body.
    """
    if format is not None and (details or common.output):
        return print_usage("Give --format, --details or --output, not several of them.")
    try:
        begin = OffsetSpec.of(start)
    except ValueError as error:
        return print_usage(f"--from: {error}.")
    try:
        form = MessageFormat(format) if format is not None else None
    except ValueError as error:
        return print_usage(f"--format: {error}.")
    wanted = _filter_of_options(filter, filter_sql)
    with cluster(common, group=group or "millstream-cli") as client:
        view = MessageView(client, group, wanted, Printer(common.output), count, wait, details, form)
        view.open(topic, begin)
        return view.run(until_end=until_end)


def _filter_of_options(tags: str | None, sql: str | None) -> MessageFilter:
    if sql is not None and tags is not None:
        raise MessageRefused("ILLEGAL_FILTER", "Give --filter or --filter-sql, not both.", remedy="")
    if sql is not None:
        return parse_filter(FilterKind.SQL, sql)
    # RocketMQ's servers take such a text for one tag, and so does ours; here a person would wait for nothing.
    if "|" in (tags or "").replace("||", ""):
        raise MessageRefused(
            "ILLEGAL_FILTER", f"The filter {tags!r} has a single |, which is in no tag.", remedy="Join tags by ||."
        )
    return parse_filter(FilterKind.TAG, tags or "")


@dataclass
class MessageView:
    """Shows the messages of a topic as they come, until `count`, the end, `wait_s` of silence, or `is_stopped`."""

    client: BlockingClient
    group: str | None
    wanted: MessageFilter
    printer: Printer
    count: int | None
    wait_s: float | None
    details: bool = False
    form: MessageFormat | None = None
    shown: int = 0
    is_stopped: Callable[[], bool] = bool
    positions: dict[QueueAddress, int] = field(default_factory=dict)
    ends: dict[QueueAddress, int] = field(default_factory=dict)

    def open(self, topic: str, start: OffsetSpec) -> None:
        for item in self.client.queue_ranges(topic):
            committed = self.client.query_offset(self.group, item.queue) if self.group else None
            position = self._begin(item, start) if committed is None else committed
            self.positions[item.queue] = max(position, item.range.min_offset)
            self.ends[item.queue] = item.range.max_offset

    def _begin(self, item: BrokerQueueRange, start: OffsetSpec) -> int:
        held = item.range
        found = start.in_queue(
            held.min_offset, held.max_offset, lambda time_ms: self.client.offset_by_time(item.queue, time_ms)
        )
        return min(found, held.max_offset)

    def run(self, *, until_end: bool) -> int:
        last_s = time.monotonic()
        while not self._is_complete():
            waiting = [queue for queue in self.positions if not until_end or self.positions[queue] < self.ends[queue]]
            if not waiting:
                break
            found = sum(self._pull(queue, 0 if until_end else _IDLE_WAIT_MS // len(waiting)) for queue in waiting)
            if found:
                last_s = time.monotonic()
            elif self.wait_s is not None and time.monotonic() - last_s > self.wait_s:
                print(f"nothing new for {self.wait_s:g} s; {self.shown:,} messages shown", file=sys.stderr)
                return ExitCode.DONE if self.count is None else ExitCode.TIMED_OUT
        return ExitCode.DONE

    def _is_complete(self) -> bool:
        return self.is_stopped() or (self.count is not None and self.shown >= self.count)

    def _pull(self, queue: QueueAddress, wait_ms: int) -> int:
        if self._is_complete():
            return 0
        batch = self.client.pull(queue, self.positions[queue], wait_ms=wait_ms, filter=self.wanted)
        position, found = batch.next_offset, 0
        if batch.status is PullStatus.FOUND:
            for message in batch.messages(verify=True):
                if self.wanted.matches(message.properties):
                    self._show(message)
                    found += 1
                if self._is_complete():
                    position = message.queue_offset + 1
                    break
        if position != self.positions[queue]:
            self.positions[queue] = position
            if self.group:
                self.client.commit_offset(self.group, queue, position)
        return found

    def _show(self, message: StoredMessage) -> None:
        self.shown += 1
        if self.form is not None:
            print(self.form.line(message), flush=True)
            return
        if self.printer.format == "json":
            print(json.dumps(values_of(message), ensure_ascii=False), flush=True)
            return
        body = body_of(message).decode("utf-8", "replace")
        if self.details:
            print("\n".join([*details_of(message), f"body        {body}", ""]), flush=True)
        elif self.printer.format == "plain":
            print(body, flush=True)
        else:
            tag = f"  [{message.tag}]" if message.tag else ""
            print(f"{message.queue_id}:{message.queue_offset}{tag}  {body}", flush=True)
