"""The stages of a worker process: one for each version that it judges by, kept from micro-batch to micro-batch."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.rules.event_rows import EventRows, Places
from millstream.streams.rules.notes import QuarantineNote
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.raw_events import EventReader
from millstream.streams.rules.stage.stage import RuleStage
from millstream.streams.spark.rules.calls import CallWatch, has_calls, with_guards
from millstream.streams.spark.rules.hit_columns import Hits, RuleColumns
from millstream.streams.spark.rules.kept_versions import KeptVersions, LeftOut
from millstream.streams.spark.rules.task_report import Judged, TaskReport
from millstream.streams.state.worker_cache import WorkerCache

__all__ = ["KEPT_STAGES", "KeptStages", "VersionStage", "stages"]

KEPT_STAGES: Final = 2
"""Stages that a worker keeps: that of the current version, and the one before it, which a replay may need."""


class VersionStage:
    """One version's stage in this process, without the rules that are left out of it."""

    def __init__(self, judged: Judged, rule_set: RuleSet, without: frozenset[str]) -> None:
        rules = [
            msgspec.structs.replace(rule, enabled=False) if rule.id in without else rule for rule in rule_set.rules
        ]
        rule_set = msgspec.structs.replace(rule_set, rules=tuple(rules))
        self.version = rule_set.version
        self.paths = rule_set.paths
        self.columns = RuleColumns(rule_set)
        self._watch: CallWatch | None = None
        if has_calls(rule_set):
            sys.path += [entry for entry in judged.python_path if entry not in sys.path]
            self._watch = CallWatch(Path(judged.directory) / "calls", judged.allowance_ms)
            rule_set = with_guards(rule_set)
        self._stage = RuleStage(rule_set)
        self._places = Places(rule_set.paths)
        self._reader: EventReader | None = None
        self._left_out = LeftOut(Path(judged.directory))
        self._noted = 0
        self._report = TaskReport()

    def reader(self, keys: frozenset[str]) -> EventReader:
        """What reads bodies for the stage; the values of `keys` at the top of events are read with what it looks at."""
        fields = self._stage.class_fields
        found = self._reader
        if found is None or not found.reads(fields, keys):
            found = self._reader = EventReader(self._places, fields, keys)
        return found

    def evaluate(self, events: EventRows) -> Hits:
        """The hits of all rules that alert or count. Notes the rules that the stage gave up."""
        watching: AbstractContextManager[None] = (
            contextlib.nullcontext() if self._watch is None else self._watch.watching()
        )
        with watching:
            found = self._stage.evaluate(events)
        self._note()
        return self.columns.hits_of(found.rows, found.rules)

    def report_since(self) -> TaskReport:
        """The atoms that were found and the values that were remembered since the last call."""
        done, before = self._stage.statistics(), self._report
        self._report = TaskReport(
            atoms=done.found,
            known=sum(group.cache_hits for group in done.groups),
            new=sum(group.cache_misses for group in done.groups),
        )
        # Groups that are rebuilt, as where a rule is given up, count from 0 again.
        return TaskReport(
            self.version,
            atoms=dict(Counter(done.found) - Counter(before.atoms)),
            known=max(0, self._report.known - before.known),
            new=max(0, self._report.new - before.new),
        )

    def _note(self) -> None:
        given_up = self._stage.quarantined
        if len(given_up) == self._noted:
            return
        new = list(given_up)[self._noted :]
        self._noted = len(given_up)
        self._left_out.note([QuarantineNote(one.rule_id, self.version, one.reason, one.evidence) for one in new])


class KeptStages:
    """At most `KEPT_STAGES`, the least recently used go first."""

    def __init__(self, make: Callable[[Judged, RuleSet, frozenset[str]], VersionStage] = VersionStage) -> None:
        self._make = make
        self._kept = WorkerCache[tuple[str, int, frozenset[str]], VersionStage](KEPT_STAGES)

    def of(self, judged: Judged, version: int) -> VersionStage:
        """The stage of a version. Raises JobError JOB_FAILED where the job does not keep that version."""
        directory = Path(judged.directory)
        without = LeftOut(directory).ids(version)

        def make() -> VersionStage:
            rule_set = KeptVersions(directory, Path(judged.store)).load(version)
            stage = self._make(judged, rule_set, without)
            # What goes for it may be found to be garbage again; see `TaskEndCollector`.
            gc.unfreeze()
            return stage

        return self._kept.get_or_make((judged.directory, version, without), make)


@functools.cache
def stages() -> KeptStages:
    """Those of this process."""
    return KeptStages()
