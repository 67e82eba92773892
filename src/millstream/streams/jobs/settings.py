"""Settings of SET and options of source tables, as the runner needs them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.streams.errors import JobError
from millstream.streams.jobs.restarts import RestartSettings
from millstream.streams.jobs.state_fit import IGNORE_UNCLAIMED
from millstream.streams.plan.tables import Table

__all__ = ["STATE_PLACES", "JobSettings", "duration_ms"]

STATE_PLACES = ("execution.checkpointing.dir", "state.checkpoints.dir")
"""The setting of where state lies, by its name in Flink 2 and the one before."""

DEFAULT_MAX_ROWS = 200_000
"""Rows of a micro-batch where nothing else is set: bounds the driver's memory for `print`, and a replay's work."""

_RESTARTS = "restart-strategy"

_DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "milli": 1,
    "millis": 1,
    "millisecond": 1,
    "milliseconds": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class JobSettings:
    """`batch` runs over what is there, without Spark's streaming; `interval_ms` between micro-batches, 0 for none.

    `ttl_ms` is how long state lives that nothing touches (0: for ever), `idle_ms` after how long without rows a queue
    holds up no window any more (0: never), where its table does not say it. `bad_cast` is null, dead-letter or fail.
    `call_error` is null, dead-letter or fail for users' functions that raise, one call of which may take
    `call_timeout_ms` (0: any time).
    `null_event_time` is count or fail for rows whose event time is NULL.
    With `waits_for_topics` a job starts before its topics are there. With `closes_windows` a bounded job ends event
    time when it has read everything. A start waits `start_timeout_ms` for servers that are away (0: not at all).
    `rules_stage` is auto, always or never. `parallelism` is how many tasks operators have, None: as many as the session
    has cores; `key_groups` into how many shares their keys are divided, None: the job's own number, or the default.
    `ignores_unclaimed` lets a changed query drop state that none of its operators takes over. `savepoint` is the
    directory from which a job without a checkpoint begins; blank for none.
    `state_place` is the address where operators keep their state and a copy of the rest of the checkpoint; blank: the
    checkpoint's own directory. With `state_mirror` the checkpoint is copied to `state_mirror_topic` (blank: one named
    after the job), and with `state_mirror_waits` a micro-batch writes to sinks once that copy can repeat it.
    """

    batch: bool
    interval_ms: int
    nameserver: str
    max_rows: int
    ttl_ms: int = 0
    idle_ms: int = 0
    bad_cast: str = "null"
    waits_for_topics: bool = False
    closes_windows: bool = True
    start_timeout_ms: int = 30_000
    rules_stage: str = "auto"
    call_error: str = "dead-letter"
    call_timeout_ms: int = 60_000
    restarts: RestartSettings = field(default_factory=RestartSettings)
    null_event_time: str = "count"
    parallelism: int | None = None
    key_groups: int | None = None
    ignores_unclaimed: bool = False
    savepoint: str = ""
    state_place: str = ""
    state_mirror: bool = False
    state_mirror_topic: str = ""
    state_mirror_waits: bool = True

    @classmethod
    def of(cls, settings: Mapping[str, str], nameserver: str) -> JobSettings:
        """The values of SET, else the defaults."""
        return cls(
            batch=settings.get("execution.runtime-mode", "streaming").lower() == "batch",
            interval_ms=duration_ms(settings.get("execution.checkpointing.interval", "0 s")),
            nameserver=settings.get("millstream.nameserver", nameserver),
            max_rows=int(settings.get("millstream.max-rows-per-trigger", DEFAULT_MAX_ROWS)),
            ttl_ms=duration_ms(settings.get("table.exec.state.ttl", "0 ms")),
            idle_ms=duration_ms(settings.get("table.exec.source.idle-timeout", "0 ms")),
            bad_cast=settings.get("millstream.bad-cast", "null").lower(),
            waits_for_topics=settings.get("millstream.wait-for-topics", "false").lower() == "true",
            start_timeout_ms=duration_ms(settings.get("millstream.start-timeout", "30 s")),
            closes_windows=settings.get("millstream.bounded.close-windows", "true").lower() == "true",
            rules_stage=settings.get("millstream.rules.stage", "auto").lower(),
            call_error=settings.get("millstream.user-function.on-error", "dead-letter").lower(),
            call_timeout_ms=duration_ms(settings.get("millstream.user-function.timeout", "60 s")),
            restarts=_restarts(settings),
            null_event_time=settings.get("millstream.null-event-time", "count").lower(),
            parallelism=_count(settings, "parallelism.default"),
            key_groups=_count(settings, "pipeline.max-parallelism"),
            ignores_unclaimed=settings.get(IGNORE_UNCLAIMED, "false").lower() == "true",
            savepoint=settings.get("execution.state-recovery.path", ""),
            state_place=next((place for name in STATE_PLACES if (place := settings.get(name, ""))), ""),
            state_mirror=settings.get("state.mirror", "none").lower() == "topic",
            state_mirror_topic=settings.get("state.mirror.topic", ""),
            state_mirror_waits=settings.get("state.mirror.wait", "true").lower() == "true",
        )

    def idle_ms_of(self, table: Table) -> int:
        """After how long a silent queue of `table` holds up no window any more; 0: never."""
        own = table.options.get("scan.watermark.idle-timeout")
        return self.idle_ms if own is None else duration_ms(own)

    def idle_ms_by_number(self, tables: Sequence[Table]) -> dict[int, int]:
        """The same by the places of tables; without those that wait for ever, or have no event time."""
        found = {number: self.idle_ms_of(table) for number, table in enumerate(tables) if table.watermark is not None}
        return {number: idle_ms for number, idle_ms in found.items() if idle_ms}


def _count(settings: Mapping[str, str], name: str) -> int | None:
    """A number of at least 1; None where the setting is not there or is Flink's -1, which leaves it to the engine."""
    number = int(settings.get(name, "-1"))
    return number if number > 0 else None


def _restarts(settings: Mapping[str, str]) -> RestartSettings:
    attempts = settings.get(f"{_RESTARTS}.exponential-delay.attempts", "")
    never = settings.get(f"{_RESTARTS}.type", "exponential-delay").lower() == "none"
    return RestartSettings(
        duration_ms(settings.get(f"{_RESTARTS}.exponential-delay.initial-backoff", "1 s")),
        duration_ms(settings.get(f"{_RESTARTS}.exponential-delay.max-backoff", "1 min")),
        0 if never else int(attempts) if attempts else None,
    )


def duration_ms(text: str) -> int:
    """Milliseconds of a text such as '5 s'. Raises JobError JOB_FAILED."""
    found = _DURATION.fullmatch(text)
    unit = _UNITS_MS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise JobError("JOB_FAILED", f"{text!r} is no duration.", remedy="Write it as in '10 s', '500 ms' or '1 min'.")
    return int(found[1]) * unit
