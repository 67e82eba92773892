"""The messages between server and driver: JSON lines over the driver's standard input and output."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from millstream.job_server.job_record import JobFailure

__all__ = [
    "EVENTS",
    "JAVA_FULL",
    "MAX_LINE_BYTES",
    "ORDERS",
    "Ended",
    "Event",
    "Failed",
    "JobOrder",
    "JobsProgress",
    "Order",
    "Ready",
    "SaveJob",
    "SavepointFailed",
    "SavepointWords",
    "SavepointWritten",
    "Start",
    "Started",
    "Stop",
    "Stopped",
    "encode_line",
]

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one line at most: an order has the texts of all jobs that are started together."""

JAVA_FULL: Final = 71
"""The exit code of a driver whose Java process had no room left in its heap."""


class JobOrder(msgspec.Struct, frozen=True):
    """A job as a driver needs it. `directory` names its checkpoint below the root."""

    name: str
    kind: str
    text: str
    settings: dict[str, str]
    directory: str


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Start these jobs together."""

    jobs: list[JobOrder]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Stop these jobs; their checkpoints stay."""

    names: list[str]


class SaveJob(msgspec.Struct, frozen=True, tag="save"):
    """Write a savepoint of a job that runs. `id` comes back with the answer, `label` is a name for people."""

    id: str
    name: str
    target: str
    label: str = ""


Order = Start | Stop | SaveJob


class SavepointWords(msgspec.Struct, frozen=True):
    """A savepoint that was written: where, and what it says of itself. `lines` are for people."""

    directory: str
    ids: list[str]
    time_ms: int
    files: int
    size_bytes: int
    lines: list[str]


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Spark has started."""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A job runs, in queries of those names; equal names say that jobs share a query."""

    name: str
    queries: list[str]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A job did not start or has failed. `may_pass` says that it is worth another try by itself."""

    name: str
    failure: JobFailure
    may_pass: bool


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A job has ended by itself: it has read all there was."""

    name: str


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """A job was stopped."""

    name: str


class SavepointWritten(msgspec.Struct, frozen=True, tag="saved"):
    """The savepoint that was asked for under that id is whole."""

    id: str
    name: str
    savepoint: SavepointWords


class SavepointFailed(msgspec.Struct, frozen=True, tag="not-saved"):
    """The savepoint that was asked for under that id is not written; the job goes on."""

    id: str
    name: str
    failure: JobFailure


class JobsProgress(msgspec.Struct, frozen=True, tag="progress"):
    """The counts of all jobs since their start, each second: fields of `JobProgress`, by the name of the job."""

    jobs: dict[str, dict[str, Any]]


Event = Ready | Started | Failed | Ended | Stopped | SavepointWritten | SavepointFailed | JobsProgress

ORDERS: Final = msgspec.json.Decoder(Order)
EVENTS: Final = msgspec.json.Decoder(Event)


def encode_line(message: Order | Event) -> bytes:
    """One line, with its end."""
    return msgspec.json.encode(message) + b"\n"
