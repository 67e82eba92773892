"""The record of a job: what its user requested, and what the servers observed. JSON with a version.

A record is one message of the topic `millstream-jobs`, its key is the job's name. The key `!leader` has the record of
the server that leads; no job has such a name.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from millstream.job_server.errors import JobServerError

__all__ = [
    "FORMAT_VERSION",
    "LEADER_KEY",
    "MAX_FAILURES",
    "MAX_NAME_CHARACTERS",
    "MAX_RECORDED_EVENTS",
    "MAX_SETTINGS",
    "MAX_TEXT_BYTES",
    "JobDemand",
    "JobFailure",
    "JobRecord",
    "JobState",
    "LeaderRecord",
    "RecordedEvent",
    "Submission",
    "check_submission",
    "decode_job",
    "decode_leader",
    "encode_record",
]

FORMAT_VERSION: Final = 1
"""The version of a record's format. A server that meets a newer one leaves the record alone."""

LEADER_KEY: Final = "!leader"
"""The key of the leader's record."""

MAX_FAILURES: Final = 10
"""Failures that are kept of a job, the last ones."""

MAX_RECORDED_EVENTS: Final = 50
"""Events that are kept of a job, the last ones."""

MAX_TEXT_BYTES: Final = 1024 * 1024
"""Bytes of a script or program at most; also of the body of a request."""

MAX_SETTINGS: Final = 200
"""Settings that a job brings along at most."""

MAX_NAME_CHARACTERS: Final = 100
"""Characters of a job's name at most."""

_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{MAX_NAME_CHARACTERS - 1}}}")
_MAX_FAILURE_CHARACTERS: Final = 4_000

JobKind = Literal["sql", "program"]
Wanted = Literal["running", "paused", "cancelled"]
JobState = Literal["queued", "starting", "running", "paused", "failed", "ended", "cancelled"]


class JobDemand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job is to have for itself. Without demands (0) it shares a driver with other jobs."""

    cores: int = 0
    """Processor cores of a driver of its own."""

    memory_mb: int = 0
    """MiB of that driver's Java heap."""

    @property
    def is_own(self) -> bool:
        """Whether it is to have a driver of its own."""
        return bool(self.cores or self.memory_mb)


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user hands in: a script of SQL, or a program of the DataStream SDK, as text."""

    name: str
    kind: JobKind = "sql"
    text: str
    settings: dict[str, str] = {}
    """Values of SET; those that begin with `spark.` go to a driver of its own."""

    demand: JobDemand = JobDemand()


class JobFailure(msgspec.Struct, frozen=True):
    """Why a job or its driver ended: a row of the error catalogue, and when that was."""

    at_ms: int
    code: str
    label: str
    message: str
    remedy: str = ""

    def shorten(self) -> JobFailure:
        """The same with a message of bounded length."""
        return msgspec.structs.replace(self, message=self.message[:_MAX_FAILURE_CHARACTERS])


class RecordedEvent(msgspec.Struct, frozen=True):
    """What happened to a job, and when; `kind` is one of `streams.jobs.job_events`, or of a later release's."""

    at_ms: int
    kind: str
    words: str


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `generation` grows with each change of what is to run, `life` when its name is given again.

    `epoch` is that of the server that wrote the record, `attempts` counts the failures since it last ran well,
    `driver_ends` the ends of shared drivers with it, of which the last was at `driver_ended_at_ms`. A suspect may be
    the one that ends them; those that are apart share a second driver. See `isolation`.
    """

    version: int = FORMAT_VERSION
    epoch: int = 0
    name: str
    kind: JobKind = "sql"
    text: str
    settings: dict[str, str] = {}
    demand: JobDemand = JobDemand()
    wanted: Wanted = "running"
    generation: int = 1
    life: int = 1
    submitted_at_ms: int
    state: JobState = "queued"
    reason: str = ""
    """Why it waits, in a sentence; blank where it does not."""

    server: str = ""
    restarts: int = 0
    attempts: int = 0
    driver_ends: int = 0
    driver_ended_at_ms: int = 0
    is_suspect: bool = False
    is_apart: bool = False
    isolation: str = ""
    """Why it has a driver of its own without having asked for one; blank where it has not."""

    failures: tuple[JobFailure, ...] = ()
    events: tuple[RecordedEvent, ...] = ()
    changed_at_ms: int
    started_at_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it never runs again under this life."""
        return self.wanted == "cancelled" or self.state in ("ended", "cancelled")

    @property
    def is_wanted(self) -> bool:
        """Whether a driver is to run it."""
        return self.wanted == "running" and self.state not in ("ended", "failed", "cancelled")

    @property
    def has_own_driver(self) -> bool:
        """Whether it shares its driver with no other job."""
        return bool(self.isolation) or self.demand.is_own or any(name.startswith("spark.") for name in self.settings)

    @property
    def directory(self) -> str:
        """The name of its checkpoint's directory. A later life has another one than the job before it."""
        return self.name if self.life == 1 else f"{self.name}~{self.life}"

    def fail(self, failure: JobFailure) -> JobRecord:
        """The record with one more failure."""
        return msgspec.structs.replace(self, failures=(*self.failures, failure.shorten())[-MAX_FAILURES:])

    def note(self, *events: RecordedEvent) -> JobRecord:
        """The record with more events, of which the last `MAX_RECORDED_EVENTS` stay."""
        return msgspec.structs.replace(self, events=(*self.events, *events)[-MAX_RECORDED_EVENTS:])


class LeaderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which server leads. A higher `epoch` counts; `released` says that all its drivers have ended."""

    version: int = FORMAT_VERSION
    epoch: int
    server: str
    url: str
    released: bool = False


_JOBS: Final = msgspec.json.Decoder(JobRecord)
_LEADERS: Final = msgspec.json.Decoder(LeaderRecord)


class _Versioned(msgspec.Struct):
    version: int = 0


def encode_record(record: JobRecord | LeaderRecord) -> bytes:
    """The record as a message's body."""
    return msgspec.json.encode(record)


def decode_job(body: bytes) -> JobRecord:
    """The record of a job. Raises ValueError for one of another format."""
    _check_version(body)
    return _JOBS.decode(body)


def decode_leader(body: bytes) -> LeaderRecord:
    """The record of the leader. Raises ValueError for one of another format."""
    _check_version(body)
    return _LEADERS.decode(body)


def _check_version(body: bytes) -> None:
    version = msgspec.json.decode(body, type=_Versioned).version
    if version != FORMAT_VERSION:
        raise ValueError(f"the record has the version {version}, and {FORMAT_VERSION} is known")


def check_submission(given: Submission) -> None:
    """Refuse what no job can be, whatever the machine has. Raises JobServerError ILLEGAL_JOB."""
    if not _NAME.fullmatch(given.name):
        words = f"{given.name[:120]!r} is no name of a job."
        remedy = f"Use 1 to {MAX_NAME_CHARACTERS} letters, digits, and . _ - behind the first."
        raise JobServerError("ILLEGAL_JOB", words, remedy=remedy)
    if len(given.text.encode()) > MAX_TEXT_BYTES:
        raise JobServerError("ILLEGAL_JOB", f"The text of the job has over {MAX_TEXT_BYTES:,} bytes.")
    if len(given.settings) > MAX_SETTINGS:
        raise JobServerError("ILLEGAL_JOB", f"The job has {len(given.settings)} settings; {MAX_SETTINGS} are taken.")
    if given.demand.cores < 0 or given.demand.memory_mb < 0:
        raise JobServerError("ILLEGAL_JOB", "Cores and memory of a job are 0 or more.")
