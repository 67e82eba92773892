"""`millstream dlq`: list the messages that a group could not consume, and send them again."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.bench.load import Pace
from millstream.cli.messages.moment import moment_ms, time_text
from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value, print_usage
from millstream.client.blocking import BlockingClient
from millstream.client.group_operations import MAX_LETTERS_PER_REQUEST, DeadLetterOperations
from millstream.model.operations import DeadLetter, DeadLetterQuery, Redriven

__all__ = ["list_dead_letters", "redrive"]

_COLUMNS = (
    "offset", "message_id", "origin_topic", "origin_id", "attempts", "died", "reason", "bytes", "redriven"
)  # fmt: skip
_STEPS_PER_SECOND = 10
"""Requests a second at most: a low rate is spread over the second instead of coming in bursts."""

_MAX_REFUSALS = 100
"""Refused letters after which a redrive stops: what refuses so many refuses the others as well."""

_SHOWN_REFUSALS = 10

_Ids = Annotated[tuple[str, ...], Parameter(name="--id", negative="")]


def list_dead_letters(
    group: str,
    *,
    id: _Ids = (),
    since: str | None = None,
    until: str | None = None,
    all: Annotated[bool, Parameter(negative="")] = False,
    count: Annotated[int, Parameter(name=["--count", "-n"], validator=Number(gte=1))] = 100,
    common: CommonOptions = CommonOptions(),
) -> int:
    """List the dead letters of a group that were not sent again, oldest first.

    Parameters
    ----------
    group
        The group that could not process them.
    id
        Only this message id, of the dead letter or of the message it was; may be given several times.
    since
        Only those that died then or later: a time (2026-11-21T08:30), or so long ago (1h).
    until
        Only those that died before that.
    all
        Those that were sent again as well.
    count
        So many at most.
    """
    try:
        query = _query(group, id, since, until, only_waiting=not all)
    except ValueError as error:
        return print_usage(f"{error}.")
    with cluster(common) as client:
        rows = [_row(letter) for letter in _letters(client, query, count)]
        if not rows:
            # Dead letters outlive their group, but a name without either is a mistake.
            client.describe_group(group)
    waiting = "" if all else " that wait; --all shows those that were sent again"
    Printer(common.output).listing(_COLUMNS, rows, empty=f"Group {group} has no dead letters{waiting}.")
    return ExitCode.DONE


def redrive(
    group: str,
    *,
    to: str | None = None,
    id: _Ids = (),
    since: str | None = None,
    until: str | None = None,
    count: Annotated[int | None, Parameter(name=["--count", "-n"], validator=Number(gte=1))] = None,
    rate: Annotated[float, Parameter(validator=Number(gt=0, lte=100_000))] = 100.0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Send dead letters again, each once, to the topics they come from. They stay in the dead-letter topic, marked.

    Parameters
    ----------
    group
        The group that could not process them.
    to
        Send them to this topic instead.
    id
        Only this message id, of the dead letter or of the message it was; may be given several times.
    since
        Only those that died then or later: a time (2026-11-21T08:30), or so long ago (1h).
    until
        Only those that died before that.
    count
        So many at most.
    rate
        So many a second at most.
    """
    try:
        query = _query(group, id, since, until, only_waiting=True)
    except ValueError as error:
        return print_usage(f"{error}.")
    with cluster(common) as client:
        work = _Work(client, query, to, count, rate)
        work.run()
        if not work.sent and not work.refused:
            client.describe_group(group)
    printer = Printer(common.output)
    printer.record(
        {"group": group, "sent": work.sent, "refused": len(work.refused), "topics": sorted(work.topics)},
        sentence=f"sent {work.sent:,} dead letters of {group} again"
        + "".join(f"\n  {amount:,} to {topic}" for topic, amount in sorted(work.topics.items())),
    )
    for one in work.refused[:_SHOWN_REFUSALS]:
        print(f"offset {one.queue_offset}, {one.message_id}: {one.refusal}", file=sys.stderr)
    if not work.refused:
        return ExitCode.DONE
    more = "; there may be more, of which none was tried" if work.gave_up else ""
    print(f"{len(work.refused):,} were refused and stay dead letters{more}.", file=sys.stderr)
    return ExitCode.PARTLY_DONE if work.sent else ExitCode.REFUSED


@dataclass
class _Work:
    client: BlockingClient
    query: DeadLetterQuery
    target: str | None
    count: int | None
    rate: float
    sent: int = 0
    refused: list[Redriven] = field(default_factory=list)
    topics: Counter[str] = field(default_factory=Counter)

    @property
    def gave_up(self) -> bool:
        return len(self.refused) >= _MAX_REFUSALS

    def run(self) -> None:
        conversations = DeadLetterOperations(self.client.conversations)
        pace = Pace(self.rate, time.monotonic())
        for address in self.client.run(conversations.brokers()):
            offset, end = 0, 1
            while offset < end and (amount := self._amount()):
                time.sleep(pace.pause_s(self.sent + len(self.refused), time.monotonic()))
                query = replace(self.query, offset=offset, max_letters=amount)
                result = self.client.run(conversations.redrive(address, query, self.target))
                self._note(result.results)
                # What dies while this runs is left for another time, so that it comes to an end.
                end = result.end_offset if offset == 0 else end
                offset = result.next_offset

    def _amount(self) -> int:
        if self.gave_up:
            return 0
        step = max(1, min(MAX_LETTERS_PER_REQUEST, int(self.rate / _STEPS_PER_SECOND)))
        return step if self.count is None else min(step, self.count - self.sent)

    def _note(self, results: tuple[Redriven, ...]) -> None:
        for one in results:
            if one.refusal:
                self.refused.append(one)
            else:
                self.sent += 1
                self.topics[one.topic] += 1


def _query(
    group: str, ids: tuple[str, ...], since: str | None, until: str | None, *, only_waiting: bool
) -> DeadLetterQuery:
    """The query of the options; ValueError."""
    now_ms = time.time_ns() // 1_000_000
    query = DeadLetterQuery(group, message_ids=frozenset(ids), only_waiting=only_waiting)
    if since is not None:
        query = replace(query, since_ms=moment_ms(since, now_ms))
    return query if until is None else replace(query, until_ms=moment_ms(until, now_ms))


def _letters(client: BlockingClient, query: DeadLetterQuery, count: int) -> Iterator[DeadLetter]:
    conversations = DeadLetterOperations(client.conversations)
    for address in client.run(conversations.brokers()):
        offset, end = 0, 1
        while offset < end and count > 0:
            page = client.run(conversations.page(address, replace(query, offset=offset, max_letters=count)))
            yield from page.letters
            count -= len(page.letters)
            offset, end = page.next_offset, page.end_offset


def _row(letter: DeadLetter) -> tuple[Value, ...]:
    return (
        letter.queue_offset,
        letter.message_id or None,
        letter.origin_topic or None,
        letter.origin_message_id or None,
        letter.attempts,
        time_text(letter.dead_ms),
        letter.reason or None,
        letter.size_bytes,
        letter.is_redriven,
    )
