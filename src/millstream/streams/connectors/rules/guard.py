"""The driver's side of rule evaluation: counts hits, quarantines failing rules, reports problems."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.errors import JobError, RuleError
from millstream.streams.plan.tables import Table
from millstream.streams.rules.notes import QuarantineNote, RuleNotes, WorkNote
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.rules.calls import DeadCall, dead_calls, guilty
from millstream.streams.spark.rules.kept_versions import KeptVersions, LeftOut
from millstream.streams.spark.rules.task_report import Judged, TaskReport, report_spool, total_of

__all__ = ["SILENT_DEATHS", "RuleGuard"]

SILENT_DEATHS: Final = 2
"""Processes that die silently in the same call of a user function before its rules are quarantined. One alone may have
been killed from outside.
"""

_NOTES_EVERY_S = 5.0
"""How often the store's notes are written: each time is a look at all that they hold."""

_LOCK_WAIT_S = 1.0
"""How long a micro-batch waits for whoever changes the store; the next one tries again."""


class RuleGuard:
    """Looks after the rules of `table` in the pipeline called `job`."""

    def __init__(self, judged: Judged, table: Table, job: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self.table = table
        self._delay_us = 0 if table.watermark is None else table.watermark.delay_ms * 1000
        self._times_us: dict[str, int] = {}
        self._unnoted = TaskReport()
        self._clock = clock
        self._noted_s = clock()
        self.directory = Path(judged.directory)
        """Where workers leave what they found."""
        self._allowance_ms = judged.allowance_ms
        self._store = RuleStore(Path(judged.store), lock_wait_s=_LOCK_WAIT_S)
        self._notes = RuleNotes(Path(judged.store))
        self._kept = KeptVersions(self.directory, Path(judged.store))
        self._left_out = LeftOut(self.directory)
        self._refused: str | None = None

    def times_us(self) -> dict[tuple[str, str], int]:
        """The newest event time of each queue less the watermark's delay, by table and queue, as far as it is told."""
        return {(self.table.name, queue): time_us - self._delay_us for queue, time_us in self._times_us.items()}

    def take_delivered_hits(self) -> Mapping[str, int]:
        """The hits by rule of the micro-batch just delivered; rules that failed in it are put out of service."""
        report = total_of(report_spool(self.directory).take())
        self._times_us = report.times_us
        self._unnoted.add(report)
        if self._clock() - self._noted_s >= _NOTES_EVERY_S:
            self.note()
        self.settle()
        return report.hits

    def note(self) -> None:
        """Add what was found since the last time to the store's notes."""
        self._noted_s = self._clock()
        report, self._unnoted = self._unnoted, TaskReport()
        if not report.events:
            return
        more: dict[str, str | int | float] = {"values_known": report.known, "values_new": report.new}
        note = WorkNote(
            self._job, report.version, _now_ms(), events=report.events, hits=report.hits, atoms=report.atoms, more=more
        )
        # They only explain: a store that cannot be written is no reason to stop.
        with contextlib.suppress(RuleError):
            self._notes.add(note)

    def resume(self) -> None:
        """Before the first micro-batch: put out of service what an earlier process failed at; forget its reports.

        They are of a micro-batch that is read again.
        """
        report_spool(self.directory).clear()
        self.settle()

    def settle(self) -> bool:
        """Put rules out of service that were found to fail; whether anything was found, be it only a suspicion.

        They are left out of every version up to the newest in use, and disabled in a new version.
        """
        before = self._left_out.suspicions()
        noted = self._left_out.take_notes()
        dead = dead_calls(self.directory / "calls")
        new = self._left_out.add([*map(self._in_newest, (*noted, *self._find_convicted(dead)))])
        for one in new:
            with contextlib.suppress(RuleError):
                self._notes.add(msgspec.structs.replace(one, job=self._job, time_ms=_now_ms()))
        self._left_out.forget_notes(noted)
        self._publish()
        return bool(new) or self._left_out.suspicions() != before

    def trouble(self) -> str | None:
        """What hinders, in one line."""
        return self._kept.trouble() or self._refused

    def _find_convicted(self, dead: list[DeadCall]) -> list[QuarantineNote]:
        """The rules whose calls ended a process, for certain or once too often, with each version that has them."""
        found = []
        for one in dead:
            name = msgspec.json.encode([one.call.function, *one.call.operands]).decode()
            if not one.is_certain and self._left_out.suspect(name) < SILENT_DEATHS:
                continue
            reason = f"{one.call.function} {self._did(one)}"
            evidence = f"value: {one.call.value}\n{one.trace}".strip()
            for version in self._kept.numbers():
                with contextlib.suppress(JobError):
                    rules = guilty(self._kept.load(version), one.call)
                    found += [QuarantineNote(rule.id, version, reason, evidence) for rule in rules]
        return found

    def _in_newest(self, one: QuarantineNote) -> QuarantineNote:
        """The same for the newest version with that rule: an old version may be replayed while newer ones are there."""
        known = {version: self._rules_of(version) for version in self._kept.numbers() if version >= one.version}
        with contextlib.suppress(RuleError):
            latest = self._store.latest()
            known[latest.version] = {rule.id: rule for rule in latest.rules if rule.enabled}
        failed = known.get(one.version, {}).get(one.rule)
        same = [
            version
            for version, rules in known.items()
            if failed is not None and one.rule in rules and rules[one.rule].condition == failed.condition
        ]
        return msgspec.structs.replace(one, version=max(same, default=one.version))

    def _rules_of(self, version: int) -> dict[str, Rule]:
        """The enabled rules of a version that is kept, by id."""
        try:
            return {rule.id: rule for rule in self._kept.load(version).rules if rule.enabled}
        except JobError:
            return {}

    def _did(self, dead: DeadCall) -> str:
        if dead.took_too_long:
            return f"did not come back within {self._allowance_ms / 1000:g} s"
        return "crashed the process" if dead.is_certain else f"ended its process {SILENT_DEATHS} times"

    def _publish(self) -> None:
        """Disable in the store what failed in the version that counts now."""
        failed = {one.rule: one.version for one in sorted(self._left_out.all(), key=lambda one: one.version)}

        def disable_failed(rule_set: RuleSet) -> RuleSet:
            rules = tuple(
                msgspec.structs.replace(rule, enabled=False) if failed.get(rule.id, 0) >= rule_set.version else rule
                for rule in rule_set.rules
            )
            return msgspec.structs.replace(rule_set, rules=rules)

        try:
            current = self._store.current() if failed else 0
            names = sorted(rule for rule, version in failed.items() if version >= current)
            if failed and names:
                self._store.publish(disable_failed, why=f"the job {self._job} put out of service: {', '.join(names)}")
            self._refused = None
        except RuleError as error:
            self._refused = error.message


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
