"""`millstream produce`: send messages from the command line, from a file or from standard input.

What `millstream produce` sends: words of the command line, the lines of a file, or a whole file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, BinaryIO, cast

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.bench.load import Pace
from millstream.cli.messages.moment import duration_ms, moment_ms, time_text
from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, print_error, print_usage, wait_for_input
from millstream.client.blocking import BlockingClient
from millstream.client.values import SendResult
from millstream.model.errors import MessageRefused, MillstreamError, Refused
from millstream.model.handles import RecallHandle
from millstream.model.message import MAX_BODY_BYTES, Message
from millstream.model.properties import MAX_PRIORITY

__all__ = ["lines_of", "open_input", "produce", "repeat_bodies", "whole"]

_READ_BYTES = 256 * 1024
"""Bytes that are read at a time at most; a pipe gives what has come, so lines are sent as they come."""

_REPEATED_AT_A_TIME = 1000
"""Messages of the command line that are handed out together at most."""


def repeat_bodies(bodies: Sequence[bytes], times: int) -> Iterator[list[bytes]]:
    """All bodies in turn, so many times, some at a time."""
    waiting: list[bytes] = []
    for _ in range(times):
        waiting += bodies
        if len(waiting) >= _REPEATED_AT_A_TIME:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def open_input(file: Path | None) -> BinaryIO:
    """The file, or standard input. MESSAGE_SOURCE where it cannot be opened."""
    if file is None:
        return cast(BinaryIO, sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        raise _unreadable(str(file), error) from None


def lines_of(source: BinaryIO) -> Iterator[list[bytes]]:
    """The lines that have come, as often as some do; without their ends, and without the blank ones."""
    rest = bytearray()
    while data := _read(source):
        rest += data
        if b"\n" not in data:
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        if found := _with_words(lines):
            yield found
    if found := _with_words([bytes(rest)]):
        yield found


def whole(source: BinaryIO) -> Iterator[list[bytes]]:
    """Everything as one body. BODY_TOO_LARGE as soon as it is."""
    body = bytearray()
    while data := _read(source):
        body += data
        if len(body) > MAX_BODY_BYTES:
            raise MessageRefused("BODY_TOO_LARGE", f"The input has more than {MAX_BODY_BYTES:,} bytes.")
    yield [bytes(body)]


def _with_words(lines: Sequence[bytes]) -> list[bytes]:
    return [line.rstrip(b"\r") for line in lines if line.strip()]


def _read(source: BinaryIO) -> bytes:
    try:
        if source is sys.stdin.buffer:
            wait_for_input(source.fileno())
        return cast(bytes, source.read1(_READ_BYTES))  # type: ignore[attr-defined]  # both kinds are buffered
    except OSError as error:
        raise _unreadable(getattr(source, "name", "standard input"), error) from None


def _unreadable(name: str, error: OSError) -> MessageRefused:
    return MessageRefused("MESSAGE_SOURCE", f"{name} cannot be read: {error.strerror or error}.")


_MESSAGES_PER_CALL = 1000
"""Messages that are sent together at most."""


def produce(
    topic: str,
    /,
    *body: str,
    standard_input: Annotated[bool, Parameter(name="-", negative="")] = False,
    file: Path | None = None,
    whole: Annotated[bool, Parameter(negative="")] = False,
    tag: str | None = None,
    key: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    property: Annotated[tuple[str, ...], Parameter(name=["--property", "-p"], negative="")] = (),
    property_of_name: Annotated[dict[str, str] | None, Parameter(name="--property", show=False)] = None,
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    priority: Annotated[int | None, Parameter(validator=Number(gte=0, lte=MAX_PRIORITY))] = None,
    delay: str | None = None,
    at: str | None = None,
    repeat: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000_000))] = 1,
    rate: Annotated[float | None, Parameter(validator=Number(gt=0, lte=1_000_000))] = None,
    ids: Annotated[bool, Parameter(negative="")] = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Send messages: words of the command line, or the lines of a file or of standard input.

    Examples: millstream produce orders "first message" --key 4711 --tag new;
    millstream produce reminders "call back" --delay 10m;
    tail -F app.log | millstream produce logs - --rate 100.

    Parameters
    ----------
    topic
        The topic, which must exist.
    body
        The messages. One that begins with - goes behind a --.
    standard_input
        Send the lines of standard input, as they come (blank ones are passed over); so does no BODY at all.
    file
        Send the lines of this file.
    whole
        Send the file or standard input as one message.
    tag
        The tag that consumers can filter by.
    key
        A key to find the message by; may be given several times.
    property
        A property of your own: NAME=VALUE; may be given several times.
    group
        The message group, within which the order is kept (topics of type fifo).
    priority
        0 and more; the higher one goes first (topics of type priority).
    delay
        Deliver it so much later, as in 30s, 10m, 2h (topics of type delay).
    at
        Deliver it at this time, as in 2026-11-21T08:30 (UTC unless it names a zone).
    repeat
        Send the bodies of the command line so many times.
    rate
        Messages per second at most.
    ids
        Show id and offset of each message also if many are sent.
    """
    try:
        given = _BodyOptions(body, standard_input, file, whole, repeat)
        given.check()
        template = Message(topic, b"", tag, key, group, _properties(property, property_of_name), priority)
        delay_ms, at_ms = _delivery(delay, at)
    except ValueError as error:
        return print_usage(str(error))
    with cluster(common) as client:
        sending = _Sending(client, Printer(common.output), template, delay_ms, at_ms, shows_all=ids)
        pace = Pace(rate, time.monotonic()) if rate is not None else None
        return sending.run(given.bodies(), pace, stops_at_refusal=bool(body))


@dataclass(frozen=True, slots=True)
class _BodyOptions:
    words: tuple[str, ...]
    standard_input: bool
    file: Path | None
    whole: bool
    repeat: int

    def check(self) -> None:
        """ValueError where it is not said once what to send."""
        if sum((bool(self.words), self.standard_input, self.file is not None)) > 1:
            raise ValueError("Give bodies, - or --file, not several of them.")
        if self.words and self.whole:
            raise ValueError("--whole is for --file and standard input.")
        if not self.words and self.repeat > 1:
            raise ValueError("--repeat is for bodies on the command line.")
        if not (self.words or self.standard_input or self.file) and sys.stdin.isatty():
            raise ValueError("Give a BODY, --file FILE, or - to send the lines of standard input.")

    def bodies(self) -> Iterator[list[bytes]]:
        if self.words:
            return repeat_bodies([word.encode(errors="surrogateescape") for word in self.words], self.repeat)
        source = open_input(self.file)
        return whole(source) if self.whole else lines_of(source)


@dataclass
class _Sending:
    client: BlockingClient
    printer: Printer
    template: Message
    delay_ms: int | None
    at_ms: int | None
    shows_all: bool
    sent: int = 0
    refused: int = 0
    under_way: int = 0
    last: SendResult | None = None

    def run(self, batches: Iterator[list[bytes]], pace: Pace | None, *, stops_at_refusal: bool) -> int:
        try:
            for bodies in batches:
                accepted = bodies if stops_at_refusal else self._small_enough(bodies)
                for part in _pace_bodies(accepted, self.sent, pace):
                    self._send(part)
        except (Refused, MillstreamError) as error:
            # What was sent before stays sent, and the exit code has to say so.
            if not self.sent:
                raise
            print_error(error)
            self.refused += self.under_way
        except KeyboardInterrupt:
            unknown = f"; of {self.under_way:,} more it is not known" if self.under_way else ""
            print(f"stopped: {self._summary()}{unknown}", file=sys.stderr)
            return ExitCode.INTERRUPTED
        if self.sent == 1 and self.last is not None and not self._shows_each:
            self._show(self.last)
        elif self.printer.format != "json":
            print(self._summary(), file=sys.stderr)
        if self.refused:
            print(f"{self.refused:,} messages were not sent", file=sys.stderr)
            return ExitCode.PARTLY_DONE if self.sent else ExitCode.REFUSED
        return ExitCode.DONE

    def _small_enough(self, bodies: list[bytes]) -> list[bytes]:
        """The lines under the limit; of each other one it is said, and the lines around it are sent all the same."""
        for body in bodies:
            if len(body) > MAX_BODY_BYTES:
                words = f"A line of {len(body):,} bytes is over the limit of {MAX_BODY_BYTES:,}."
                print_error(MessageRefused("BODY_TOO_LARGE", words))
                self.refused += 1
        return [body for body in bodies if len(body) <= MAX_BODY_BYTES]

    def _send(self, bodies: Sequence[bytes]) -> None:
        self.under_way = len(bodies)
        due_ms = self.at_ms if self.delay_ms is None else time.time_ns() // 1_000_000 + self.delay_ms
        messages = [replace(self.template, body=body, delivery_timestamp_ms=due_ms) for body in bodies]
        # A batch may hold no delayed messages in RocketMQ, and its answer no recall handles.
        parts = [messages] if due_ms is None else [[message] for message in messages]
        for part in parts:
            receipts = self.client.send_many(part) if due_ms is None else [self.client.send(part[0])]
            self.sent += len(receipts)
            self.under_way -= len(receipts)
            self.last = receipts[-1]
            if self._shows_each:
                for receipt in receipts:
                    self._show(receipt)

    def _summary(self) -> str:
        return f"sent {self.sent:,} message{'' if self.sent == 1 else 's'} to {self.template.topic}"

    @property
    def _shows_each(self) -> bool:
        """Whether every receipt is printed, not only that of a single message: recall handles are needed later."""
        is_delayed = self.delay_ms is not None or self.at_ms is not None
        return self.shows_all or is_delayed or self.printer.format == "json"

    def _show(self, receipt: SendResult) -> None:
        values: dict[str, str | int | None] = {
            "message_id": receipt.message_id,
            "topic": self.template.topic,
            "broker": receipt.queue.broker_name,
            "queue": receipt.queue.queue_id,
            "offset": receipt.queue_offset,
        }
        place = f"queue {receipt.queue.queue_id}, offset {receipt.queue_offset}"
        if receipt.recall_handle:
            due = time_text(RecallHandle.decode(receipt.recall_handle).due_ms)
            values |= {"queue": None, "offset": None, "due": due, "recall_handle": receipt.recall_handle}
            place = f"due {due}, recall handle {receipt.recall_handle}"
        self.printer.record(values, sentence=f"sent {receipt.message_id} to {self.template.topic}, {place}")


def _pace_bodies(bodies: list[bytes], sent: int, pace: Pace | None) -> Iterator[list[bytes]]:
    """The bodies in parts, each when its first one is due; `sent` went before."""
    start = 0
    while start < len(bodies):
        size = _MESSAGES_PER_CALL
        if pace is not None:
            time.sleep(pace.pause_s(sent + start, time.monotonic()))
            size = max(1, min(size, pace.due_count(time.monotonic()) - sent - start))
        yield bodies[start : start + size]
        start += size


def _properties(given: Sequence[str], named: dict[str, str] | None) -> dict[str, str]:
    found = dict(named or {})
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise ValueError(f"--property takes NAME=VALUE, not {text[:200]!r}.")
        found[name] = value
    return found


def _delivery(delay: str | None, at: str | None) -> tuple[int | None, int | None]:
    """How much later, or when; ValueError where it cannot be read."""
    if delay is not None and at is not None:
        raise ValueError("Give --delay or --at, not both.")
    try:
        if delay is not None:
            return duration_ms(delay), None
    except ValueError as error:
        raise ValueError(f"--delay: {error}.") from None
    if at is None:
        return None, None
    now_ms = time.time_ns() // 1_000_000
    try:
        at_ms = moment_ms(at, now_ms)
    except ValueError:
        raise ValueError(f"--at: {at!r} is no time; write 2026-11-21T08:30.") from None
    if at_ms <= now_ms:
        raise ValueError(f"--at: {at} is over; the time has to come. --delay takes a length of time.")
    return None, at_ms
