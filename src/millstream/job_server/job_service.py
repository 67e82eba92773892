"""The operations of a job server: submit, list and change jobs. A refused request changes nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.job_server.binding import SAVEPOINT_SETTING, plans_of_script
from millstream.job_server.bounded_log import last_lines
from millstream.job_server.driver_job import finish_savepoint
from millstream.job_server.driver_messages import SavepointWords
from millstream.job_server.errors import JobServerError, unknown_job
from millstream.job_server.examination import Examiner, Findings
from millstream.job_server.fleet import Fleet, FleetOptions
from millstream.job_server.job_record import JobDemand, JobRecord, Submission, check_submission
from millstream.job_server.leadership import Leadership
from millstream.job_server.secrets import hide_in, hide_spans, secrets_in, warn_of_secrets
from millstream.model.clock import Clock
from millstream.streams.jobs.savepoints.savepoint_parts import stage_checkpoints
from millstream.streams.secrets import hide_secrets

__all__ = ["SAVEPOINTS_DIRECTORY", "JobService", "SavepointDemand", "Update"]

SAVEPOINTS_DIRECTORY: Final = "~savepoints"
"""Where savepoints go that name no directory, beside the checkpoints; no job can have that name."""

_ACTIONS: Final = {"pause": "paused", "resume": "running", "cancel": "cancelled"}


class Update(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to become of a job: values that are left out stay. Without `apply` it is only looked at."""

    text: str | None = None
    settings: dict[str, str] | None = None
    demand: JobDemand | None = None
    apply: bool = False


class SavepointDemand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What savepoint is wanted: its directory on the server's machine, one of the server's if blank; `label` names it
    for people."""

    directory: str = ""
    label: str = ""


class JobService:
    """The operations, on the server that leads; others raise NotLeading. Calls come from one event loop."""

    def __init__(self, leadership: Leadership, fleet: Fleet, options: FleetOptions, clock: Clock) -> None:
        self._leadership = leadership
        self._fleet = fleet
        self._options = options
        self._clock = clock
        self._saving: set[str] = set()
        """Names of jobs without a driver whose checkpoints are read for savepoints."""

        self._examiner = Examiner(options.directory / "work", options.checkpoints, options.nameserver)

    @property
    def has_leader(self) -> bool:
        """Whether this server leads or knows who does."""
        return self._leadership.is_leading or bool(self._leadership.leader_url)

    async def submit(self, given: Submission) -> dict[str, Any]:
        """Take a job in, once its text is bound; what is kept of it.

        The answer has for each query of a savepoint that the job begins from what becomes of its state. Raises
        ILLEGAL_JOB, JOB_EXISTS, JOB_DEMAND, JOB_LIMIT, and what binding raises; CHECKPOINT_MISMATCH, SAVEPOINT_REFUSED
        and CHECKPOINT_DAMAGED where the job cannot begin from its savepoint.
        """
        self._leadership.require()
        check_submission(given)
        self._check_free(given.name)
        self._options.limits.check(given.demand)
        found = await self._bind(given)
        found.require_savepoint_fit()

        def make() -> JobRecord:
            # Another one of the name may have come while this one was bound.
            before = self._check_free(given.name)
            now_ms = self._clock.now_ms()
            return JobRecord(
                name=given.name,
                kind=given.kind,
                text=given.text,
                settings=given.settings,
                demand=given.demand,
                life=1 if before is None else before.life + 1,
                submitted_at_ms=now_ms,
                changed_at_ms=now_ms,
            )

        kept = await self._leadership.add(make)
        return {
            **self._view(kept),
            "recovery": [msgspec.to_builtins(one) for one in found.fits],
            "notices": warn_of_secrets(given.text, given.settings),
        }

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, by name."""
        self._leadership.require()
        return [self._view(record) for _, record in sorted(self._leadership.book.jobs.items())]

    def describe(self, name: str) -> dict[str, Any]:
        """One job, with its last events and its text, in which secrets are hidden. Raises JOB_NOT_FOUND."""
        record = self._find(name)
        events = [msgspec.to_builtins(one) for one in record.events]
        progress = self._fleet.progress.get(name) or {}
        if progress.get("checkpoint_ms") is not None:
            # Of checkpoints that are complete the newest counts: all of them would leave no room for other events.
            words = f"{progress['batches']} micro-batches since the start of the job."
            events.append({"at_ms": progress["checkpoint_ms"], "kind": "checkpoint_completed", "words": words})
        events.sort(key=lambda one: one["at_ms"])
        shown_events = hide_in(events, secrets_in(record.text, record.settings))
        return {**self._view(record), "events": shown_events, "text": hide_spans(record.text)}

    def logs(self, name: str, lines: int) -> list[str]:
        """The last lines of the log of the job's driver, without the secrets of its jobs. Raises JOB_NOT_FOUND."""
        log = self._fleet.log_of(self._find(name))
        sharing = [one for one in self._leadership.book.jobs.values() if self._fleet.log_of(one) == log]
        secrets = [secret for one in sharing for secret in secrets_in(one.text, one.settings)]
        return [hide_secrets(line, secrets) for line in last_lines(log, lines)]

    async def change(self, name: str, action: str) -> dict[str, Any]:
        """Do `pause`, `resume` or `cancel`. Raises JOB_NOT_FOUND, JOB_STATE for a job that is over."""
        wanted = _ACTIONS[action]

        def change_record(record: JobRecord) -> JobRecord:
            if name in self._saving and action != "cancel":
                raise JobServerError("JOB_STATE", f"A savepoint of {name} is being written.", remedy="Try again.")
            if record.is_over and action != "cancel":
                words = f"The job {name} is {record.state}."
                raise JobServerError("JOB_STATE", words, remedy="Submit it again.")
            values: dict[str, Any] = {"wanted": wanted, "changed_at_ms": self._clock.now_ms()}
            if action == "resume" and record.state in ("paused", "failed"):
                values |= {"state": "queued", "reason": "", "attempts": 0}
            if record.state == "ended":
                values = {}
            return msgspec.structs.replace(record, **values)

        self._find(name)
        if action == "resume":
            self._fleet.forget_wait(name)
        return self._view(await self._leadership.change(name, change_record))

    async def update(self, name: str, given: Update) -> dict[str, Any]:
        """What an update changes, and with `apply` the update itself.

        The answer has the difference of the plans, and of each checkpoint whether it fits. Raises JOB_NOT_FOUND,
        JOB_STATE, JOB_DEMAND, what binding raises, and with `apply` CHECKPOINT_MISMATCH: the job runs on then.
        """
        record = self._find(name)
        if record.is_over:
            raise JobServerError("JOB_STATE", f"The job {name} is {record.state}.", remedy="Submit it again.")
        wanted = Submission(
            name=name,
            kind=record.kind,
            text=record.text if given.text is None else given.text,
            settings=record.settings if given.settings is None else given.settings,
            demand=record.demand if given.demand is None else given.demand,
        )
        check_submission(wanted)
        self._options.limits.check(wanted.demand)
        if wanted.kind == "sql":
            await asyncio.to_thread(plans_of_script, wanted.text, wanted.settings, self._options.nameserver)
        now = Submission(name=name, kind=record.kind, text=record.text, settings=record.settings)
        secrets = [secret for one in (wanted, now) for secret in secrets_in(one.text, one.settings)]
        is_running = self._fleet.has_driver(name)
        found = await self._examiner.compare(wanted, now, record.directory, is_running=is_running)
        if given.apply:
            found.require_fit()

            def change_record(present: JobRecord) -> JobRecord:
                if (present.life, present.generation) != (record.life, record.generation):
                    raise JobServerError("JOB_STATE", f"The job {name} was changed meanwhile.", remedy="Try again.")
                is_failed = present.state == "failed"
                return msgspec.structs.replace(
                    present,
                    text=wanted.text,
                    settings=wanted.settings,
                    demand=wanted.demand,
                    generation=present.generation + 1,
                    isolation="",
                    driver_ends=0,
                    state="queued" if is_failed else present.state,
                    attempts=0,
                    changed_at_ms=self._clock.now_ms(),
                )

            await self._leadership.change(name, change_record)
            self._fleet.forget_wait(name)
        return {
            "applied": given.apply,
            "difference": hide_in(found.difference, secrets),
            "state": [msgspec.to_builtins(one) for one in found.fits],
            "notices": warn_of_secrets(wanted.text, wanted.settings),
            "job": self._view(self._find(name)),
        }

    async def write_savepoint(self, name: str, given: SavepointDemand) -> dict[str, Any]:
        """Write a savepoint of a job that runs, or from the checkpoint of one that is paused, has failed or is over.

        The answer has its directory, its size and what it says of itself. Raises JOB_NOT_FOUND, JOB_STATE for a job
        that waits for a driver, SAVEPOINT_REFUSED, CHECKPOINT_MISMATCH where there is no checkpoint.
        """
        record = self._find(name)
        target = self._savepoint_target(name, given.directory)
        if self._fleet.has_driver(name):
            written = await self._fleet.write_savepoint(name, target, given.label)
        else:
            if record.is_wanted or name in self._saving:
                words = f"The job {name} is {record.state} and has no driver. {record.reason}".strip()
                raise JobServerError("JOB_STATE", words, remedy="Wait until it runs, or pause it.")
            written = await self._save_stopped(record, target, given.label)
            self._fleet.note_savepoint(name, written)
        return {"job": name, **msgspec.to_builtins(written)}

    # inside

    async def _save_stopped(self, record: JobRecord, target: Path, label: str) -> SavepointWords:
        def write() -> SavepointWords:
            staged = stage_checkpoints(self._options.checkpoints, record.directory, target, label)
            self._saving.discard(record.name)
            return finish_savepoint(staged)

        # The job does not start again while its files are held, which takes a name in the file system for each.
        self._saving.add(record.name)
        try:
            return await asyncio.to_thread(write)
        finally:
            self._saving.discard(record.name)

    def _savepoint_target(self, name: str, directory: str) -> Path:
        if not directory:
            moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._clock.now_ms() / 1000))
            place = f"{name}-{moment}.{self._clock.now_ms() % 1000:03}Z"
            return self._options.checkpoints.resolve() / SAVEPOINTS_DIRECTORY / place
        target = Path(directory)
        if not target.is_absolute():
            words = f"{directory[:200]!r} is no absolute path on the machine of the job server."
            raise JobServerError("SAVEPOINT_REFUSED", words, remedy="Write it from the root: /backup/before-update.")
        if target.exists():
            words = f"{target} is there already."
            raise JobServerError("SAVEPOINT_REFUSED", words, remedy="Name a directory that does not exist.")
        return target

    def _check_free(self, name: str) -> JobRecord | None:
        """The job of that name that is over, if there is one. Raises JOB_EXISTS for one that is not, JOB_LIMIT."""
        book = self._leadership.book
        before = book.jobs.get(name)
        if before is not None and not before.is_over:
            raise JobServerError("JOB_EXISTS", f"There is a job {name!r}; it is {before.state}.")
        if before is None and book.is_full:
            raise JobServerError("JOB_LIMIT", f"There are {len(book.jobs):,} jobs, none of which is over.")
        return before

    def _find(self, name: str) -> JobRecord:
        self._leadership.require()
        record = self._leadership.book.jobs.get(name)
        if record is None:
            raise unknown_job(name, self._leadership.book.jobs)
        return record

    async def _bind(self, given: Submission) -> Findings:
        if given.kind == "sql":
            plans = await asyncio.to_thread(plans_of_script, given.text, given.settings, self._options.nameserver)
            if not any(plan.settings.get(SAVEPOINT_SETTING) for plan in plans):
                return Findings()
        return await self._examiner.bind(given)

    def _view(self, record: JobRecord) -> dict[str, Any]:
        """The record without its text and its secrets, with what its driver tells now."""
        shown: dict[str, Any] = msgspec.to_builtins(record)
        for hidden in ("text", "version", "epoch", "events"):
            shown.pop(hidden)
        progress = self._fleet.progress.get(record.name)
        shown["progress"] = (
            None
            if progress is None
            else {
                **progress,
                "watermark_lag_s": _lag_s(progress.get("watermark_ms")),
                "lag_s": 0.0 if progress.get("behind") == 0 else _lag_s(progress.get("read_to_ms")),
            }
        )
        shown["queries"] = list(self._fleet.queries_of(record.name))
        return hide_in(shown, secrets_in(record.text, record.settings))  # type: ignore[no-any-return]


def _lag_s(since_ms: int | None) -> float | None:
    """Seconds from a time to now; None where there is none."""
    return None if since_ms is None else max(0.0, time.time() - since_ms / 1000)
