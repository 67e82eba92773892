"""What `millstream produce` sends: words of the command line, the lines of a file, or a whole file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from millstream.cli.waiting import wait_for_input
from millstream.model.errors import MessageRefused
from millstream.model.message import MAX_BODY_BYTES

__all__ = ["lines_of", "open_input", "repeated", "whole"]

_READ_BYTES = 256 * 1024
"""Bytes that are read at a time at most; a pipe gives what has come, so lines are sent as they come."""

_REPEATED_AT_A_TIME = 1000
"""Messages of the command line that are handed out together at most."""


def repeated(bodies: Sequence[bytes], times: int) -> Iterator[list[bytes]]:
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
