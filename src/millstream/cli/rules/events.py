"""Events that rules are tried on: lines of a file, standard input, messages of a topic."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson

from millstream.cli.messages.near_names import cluster
from millstream.cli.messages.shown_message import body_of
from millstream.cli.options import CommonOptions
from millstream.model.operations import PullStatus
from millstream.streams.errors import RuleError

__all__ = ["Event", "events_of_file", "events_of_topic", "one_event", "one_message"]

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Bytes of one event of a file."""


class Event(NamedTuple):
    """One event and where it was read; `fields` is None where it is no JSON object."""

    place: str
    fields: dict[str, Any] | None


def events_of_file(path: Path) -> Iterator[Event]:
    """The events of a file of JSON lines, which zstd may have packed (`.zst`); `-` is standard input. RULE_EVENT."""
    with _open_events(path) as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise RuleError("RULE_EVENT", f"Line {number} of {path} is longer than {MAX_LINE_BYTES:,} bytes.")
            if line.strip():
                yield Event(f"line {number}", _fields(line))


@contextmanager
def _open_events(path: Path) -> Iterator[IO[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdError, ZstdFile
    else:
        from backports.zstd import ZstdError, ZstdFile
    try:
        file: IO[bytes] = path.open("rb")
        if path.suffix == ".zst":
            file = io.BufferedReader(ZstdFile(file))
        with file:
            yield file
    except OSError as error:
        raise RuleError("RULE_EVENT", f"The file {path} cannot be read: {error.strerror or error}.") from None
    except (ZstdError, EOFError) as error:
        raise RuleError("RULE_EVENT", f"The file {path} cannot be unpacked: {error}.") from None


def events_of_topic(topic: str, common: CommonOptions) -> Iterator[Event]:
    """The messages that a topic has now, from the first to the last of each queue."""
    with cluster(common) as client:
        for item in client.queue_ranges(topic):
            position, end = item.range.min_offset, item.range.max_offset
            while position < end:
                batch = client.pull(item.queue, position)
                if batch.status is PullStatus.FOUND:
                    for message in batch.messages(verify=True):
                        if message.queue_offset < end:
                            place = f"{topic}/{item.queue.queue_id}/{message.queue_offset}"
                            yield Event(place, _fields(body_of(message)))
                if batch.next_offset <= position:
                    break
                position = batch.next_offset


def one_event(path: Path) -> dict[str, Any]:
    """The only event of a file, or of standard input (`-`), on one line or several. RULE_EVENT."""
    with _open_events(path) as file:
        content = file.read(MAX_LINE_BYTES + 1)
    fields = _fields(content)
    if fields is None:
        first = content.split(b"\n", 1)[0]
        several = " Several events are tested by millstream rules test." if _fields(first) is not None else ""
        raise RuleError("RULE_EVENT", f"{_name(path)} holds no JSON object.{several}")
    return fields


def one_message(place: str, common: CommonOptions) -> dict[str, Any]:
    """The event of a message, told as TOPIC/QUEUE/OFFSET, or TOPIC/BROKER:QUEUE/OFFSET. RULE_EVENT."""
    parts = place.rsplit("/", 2)
    broker, _, queue = parts[1].rpartition(":") if len(parts) == 3 else ("", "", "")
    if len(parts) != 3 or not queue.isdecimal() or not parts[2].isdecimal():
        raise RuleError("RULE_EVENT", f"{place!r} names no message: write TOPIC/QUEUE/OFFSET.", remedy="")
    topic, offset = parts[0], int(parts[2])
    with cluster(common) as client:
        for item in client.queue_ranges(topic):
            if item.queue.queue_id != int(queue) or (broker and item.queue.broker_name != broker):
                continue
            batch = client.pull(item.queue, offset)
            if batch.status is not PullStatus.FOUND:
                continue
            for message in batch.messages(verify=True):
                if message.queue_offset == offset:
                    fields = _fields(body_of(message))
                    if fields is None:
                        raise RuleError("RULE_EVENT", f"The message {place} is no JSON object.")
                    return fields
    raise RuleError("RULE_EVENT", f"There is no message {place}.", remedy="Messages older than the retention are gone.")


def _name(path: Path) -> str:
    return "Standard input" if str(path) == "-" else f"The file {path}"


def _fields(content: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
