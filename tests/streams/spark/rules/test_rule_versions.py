"""Which version of the rules judges a micro-batch, and what becomes of rules that fail."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.connectors.rules.reader import HitsBatchReader, HitsSpec, HitsStreamReader
from millstream.streams.errors import JobError, RuleError
from millstream.streams.plan.tables import Table
from millstream.streams.rules.conditions import Op, Predicate, Truth
from millstream.streams.rules.notes import QuarantineNote, RuleNotes
from millstream.streams.rules.rule import Rule
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.rules.calls import WatchedCall
from millstream.streams.spark.rules.kept_versions import KEPT_VERSIONS, KeptVersions, LeftOut
from millstream.streams.spark.rules.task_report import Judged, TaskReport, report_name, report_spool
from millstream.streams.spark.source.position import Position, QueueSpan, Slice
from millstream.streams.spark.source.topic_partition import TopicPartition


@pytest.fixture
def store(tmp_path: Path) -> RuleStore:
    return RuleStore(tmp_path / "store")


@pytest.fixture
def kept(tmp_path: Path) -> KeptVersions:
    return KeptVersions(tmp_path / "job", tmp_path / "store")


@pytest.fixture
def guard(tmp_path: Path) -> RuleGuard:
    return RuleGuard(Judged(str(tmp_path / "store"), str(tmp_path / "job")), Table("hits", (), {}), "j")


def add(store: RuleStore, *rules: Rule) -> None:
    store.publish(lambda before: msgspec.structs.replace(before, rules=before.rules + rules))


def rule(name: str, function: str = "") -> Rule:
    return Rule(name, name, Predicate("x", Op.CALL, (function,)) if function else Truth(True), text="as it was written")


def enabled(store: RuleStore) -> list[str]:
    return [one.id for one in store.latest().rules if one.enabled]


def test_a_position_tells_its_version_and_an_older_release_s_has_none() -> None:
    position = Position({"b/0": 3}, rules=4)
    assert Position.from_json(position.to_json()) == position
    assert Position.from_json({"queues": {"b/0": 3}}).rules == 0
    assert "rules" not in Position({"b/0": 3}).to_json()


def test_the_version_that_counts_is_taken_and_kept(store: RuleStore, kept: KeptVersions) -> None:
    add(store, rule("one"))
    assert kept.take() == 1
    add(store, rule("two"))
    assert kept.load(1).rules == (msgspec.structs.replace(rule("one"), text=""),)
    assert kept.take() == 2
    assert [one.id for one in kept.load(2).rules] == ["one", "two"]
    assert kept.trouble() is None


def test_a_store_that_never_had_rules_is_refused(kept: KeptVersions) -> None:
    with pytest.raises(RuleError, match="holds no rules"):
        kept.take()


@pytest.mark.parametrize("harm", ["gone", "emptied", "damaged", "version damaged"])
def test_the_last_version_goes_on_where_the_store_has_none_to_give_and_says_so(
    store: RuleStore, kept: KeptVersions, harm: str
) -> None:
    add(store, rule("one"))
    assert kept.take() == 1
    add(store, rule("two"))
    hidden = store.directory.rename(store.directory.with_name("hidden"))
    if harm == "emptied":
        store.directory.mkdir()
    elif harm != "gone":
        store.directory.mkdir()
        (store.directory / "versions").mkdir()
        (store.directory / "versions" / "2.rules").write_bytes(b"MSRULES 1 no")
        current = (hidden / "current").read_bytes()
        (store.directory / "current").write_bytes(b"no" if harm == "damaged" else current)
    assert kept.take() == 1
    said = kept.trouble()
    assert said is not None
    assert said.endswith("Version 1 of the rules goes on judging.")
    assert "\n" not in said
    if harm != "gone":
        store.directory.rename(store.directory.with_name("harmed"))
    hidden.rename(store.directory)
    assert kept.take() == 2
    assert kept.trouble() is None


def test_only_the_newest_versions_are_kept(store: RuleStore, kept: KeptVersions) -> None:
    for number in range(KEPT_VERSIONS + 2):
        add(store, rule(str(number)))
        kept.take()
    assert kept.numbers() == list(range(3, KEPT_VERSIONS + 3))
    with pytest.raises(JobError, match="Version 2 of the rules"):
        kept.load(2)


def test_a_rule_is_left_out_of_the_versions_that_it_failed_in(tmp_path: Path) -> None:
    left_out = LeftOut(tmp_path)
    left_out.add([QuarantineNote("bad", 3, "raises")])
    assert left_out.ids(2) == left_out.ids(3) == {"bad"}
    assert left_out.ids(4) == frozenset()


def test_what_a_worker_gave_up_is_disabled_in_a_new_version_with_its_reason(
    store: RuleStore, kept: KeptVersions, guard: RuleGuard, tmp_path: Path
) -> None:
    add(store, rule("good"), rule("bad"))
    kept.take()
    LeftOut(tmp_path / "job").note([QuarantineNote("bad", 1, "it raises", "{}")])
    assert guard.settle()
    assert enabled(store) == ["good"]
    assert [(one.rule, one.reason, one.job) for one in RuleNotes(store.directory).read().quarantined] == [
        ("bad", "it raises", "j")
    ]
    assert not guard.settle()
    assert store.current() == 2


def test_a_rule_that_is_enabled_again_stays_so_until_it_fails_again(
    store: RuleStore, kept: KeptVersions, guard: RuleGuard, tmp_path: Path
) -> None:
    add(store, rule("bad"))
    kept.take()
    LeftOut(tmp_path / "job").note([QuarantineNote("bad", 1, "it raises")])
    guard.settle()
    store.publish(lambda before: msgspec.structs.replace(before, rules=(rule("bad"),)))
    guard.settle()
    assert enabled(store) == ["bad"]
    assert LeftOut(tmp_path / "job").ids(store.current()) == frozenset()
    LeftOut(tmp_path / "job").note([QuarantineNote("bad", store.current(), "it raises")])
    guard.settle()
    assert enabled(store) == []


def test_a_rule_that_fails_in_a_replay_is_disabled_where_it_is_still_the_same(
    store: RuleStore, kept: KeptVersions, guard: RuleGuard, tmp_path: Path
) -> None:
    add(store, rule("same"), rule("mended"))
    kept.take()
    mended = rule("mended", "m:f")
    store.publish(lambda before: msgspec.structs.replace(before, rules=(rule("same"), mended)))
    kept.take()
    add(store, rule("new"))
    LeftOut(tmp_path / "job").note([QuarantineNote("same", 1, "it raises"), QuarantineNote("mended", 1, "it raises")])
    guard.settle()
    assert enabled(store) == ["mended", "new"]
    assert LeftOut(tmp_path / "job").ids(1) == {"same", "mended"}
    assert LeftOut(tmp_path / "job").ids(2) == {"same"}


def left_behind(job: Path, function: str, trace: str) -> None:
    """What a process leaves that ended in a call."""
    (job / "calls").mkdir(parents=True, exist_ok=True)
    text = msgspec.json.encode(WatchedCall(function, (), "v"))
    (job / "calls" / "1-1.call").write_bytes(len(text).to_bytes(4) + text)
    (job / "calls" / "1-1.trace").write_text(trace)


def test_a_crash_is_the_fault_of_all_rules_with_that_call_in_whatever_version(
    store: RuleStore, kept: KeptVersions, guard: RuleGuard, tmp_path: Path
) -> None:
    add(store, rule("bad", "m:f"), rule("other", "m:g"), rule("too", "m:f"))
    kept.take()
    store.publish(lambda before: msgspec.structs.replace(before, rules=before.rules[:2]))
    kept.take()
    left_behind(tmp_path / "job", "m:f", "Fatal Python error: Aborted")
    assert guard.settle()
    assert LeftOut(tmp_path / "job").ids(1) == {"bad", "too"}
    assert LeftOut(tmp_path / "job").ids(2) == {"bad"}
    assert enabled(store) == ["other"]


def test_a_process_that_ends_without_a_word_is_suspected_once_and_believed_twice(
    store: RuleStore, kept: KeptVersions, guard: RuleGuard, tmp_path: Path
) -> None:
    add(store, rule("bad", "m:f"))
    kept.take()
    left_behind(tmp_path / "job", "m:f", "")
    assert guard.settle()
    assert enabled(store) == ["bad"]
    left_behind(tmp_path / "job", "m:f", "")
    assert guard.settle()
    assert enabled(store) == []


def test_a_store_that_cannot_be_written_leaves_the_rule_out_all_the_same(
    store: RuleStore, kept: KeptVersions, guard: RuleGuard, tmp_path: Path
) -> None:
    add(store, rule("bad"))
    kept.take()
    (store.directory / "current").write_bytes(b"no")
    LeftOut(tmp_path / "job").note([QuarantineNote("bad", 1, "it raises")])
    assert guard.settle()
    assert LeftOut(tmp_path / "job").ids(1) == {"bad"}
    assert guard.trouble() is not None


def test_a_task_that_is_repeated_counts_once(tmp_path: Path, guard: RuleGuard) -> None:
    slices = (Slice("b/0", 0, 5), Slice("b/1", 2, 9))
    spool = report_spool(tmp_path / "job")
    for _ in range(2):
        spool.put(report_name(slices), [TaskReport(1, 12, {"one": 3})])
    spool.put(report_name((Slice("b/1", 9, 10),)), [TaskReport(1, 1, {"one": 1, "two": 1})])
    assert guard.take_delivered_hits() == {"one": 4, "two": 1}
    assert guard.take_delivered_hits() == {}


def test_what_was_found_is_noted_in_the_store_now_and_then_and_at_the_end(tmp_path: Path, store: RuleStore) -> None:
    add(store, rule("one"))
    seconds = [0.0]
    judged = Judged(str(tmp_path / "store"), str(tmp_path / "job"))
    guard = RuleGuard(judged, Table("hits", (), {}), "j", clock=lambda: seconds[0])

    def judges(place: int) -> int:
        report = TaskReport(1, 10, {"one": 2}, {"b/0": 5 + place}, {"x is 1": 4}, known=3, new=1)
        report_spool(tmp_path / "job").put(report_name((Slice("b/0", place, place + 1),)), [report])
        guard.take_delivered_hits()
        return sum(worked.events for worked in RuleNotes(store.directory).read().worked)

    assert judges(0) == 0
    seconds[0] = 6.0
    assert judges(1) == 20
    assert judges(2) == 20
    guard.note()
    (worked,) = RuleNotes(store.directory).read().worked
    assert (worked.job, worked.events, worked.hits, worked.atoms) == ("j", 30, {"one": 6}, {"x is 1": 12})
    assert guard.times_us() == {("hits", "b/0"): 7}


@dataclass
class Log:
    """A topic of one queue."""

    end: int = 0

    def spans(self, topic: str) -> dict[str, QueueSpan]:
        return {"b/0": QueueSpan(0, self.end, 5)}

    def takes_bulk(self, topic: str) -> bool:
        return False

    def cold_spans(self, topic: str, part: Slice, *, bulk: bool) -> tuple[()]:
        return ()


def reader_of(log: Log, tmp_path: Path) -> HitsStreamReader:
    judged = Judged(str(tmp_path / "store"), str(tmp_path / "job"))
    reader = HitsStreamReader(HitsSpec("n", "t", (), Position(), judged=judged))
    vars(reader)["_log"] = log
    return reader


def judging(reader: HitsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> set[int]:
    return {part.rules for part in reader.partitions(start, end) if isinstance(part, TopicPartition)}


def test_a_micro_batch_has_one_version_and_a_replay_the_same(store: RuleStore, tmp_path: Path) -> None:
    add(store, rule("one"))
    log = Log(5)
    reader = reader_of(log, tmp_path)
    first = reader.latestOffset(Position().to_json(), ReadAllAvailable())
    add(store, rule("two"))
    assert judging(reader, Position().to_json(), first) == {1}
    log.end = 9
    second = reader.latestOffset(first, ReadAllAvailable())
    assert judging(reader, first, second) == {2}
    assert judging(reader_of(log, tmp_path), Position().to_json(), first) == {1}


def test_no_core_waits_long_for_the_other_where_events_of_one_queue_take_longer(
    store: RuleStore, tmp_path: Path
) -> None:
    add(store, rule("one"))
    for rows, tasks in ((100_000, 2), (4_000, 1)):
        reader = reader_of(Log(rows), tmp_path)
        end = reader.latestOffset(Position().to_json(), ReadAllAvailable())
        assert len(reader.partitions(Position().to_json(), end)) == tasks


def test_new_rules_alone_make_no_micro_batch(store: RuleStore, tmp_path: Path) -> None:
    add(store, rule("one"))
    reader = reader_of(Log(5), tmp_path)
    first = reader.latestOffset(Position().to_json(), ReadAllAvailable())
    add(store, rule("two"))
    assert reader.latestOffset(first, ReadAllAvailable()) == first


def test_a_bounded_run_is_judged_by_the_rules_of_its_start(store: RuleStore, tmp_path: Path) -> None:
    add(store, rule("one"))
    log = Log(5)
    reader = reader_of(log, tmp_path)
    reader.prepareForTriggerAvailableNow()
    add(store, rule("two"))
    assert reader.latestOffset(Position().to_json(), ReadAllAvailable())["rules"] == 1


def test_workers_get_a_reader_without_what_belongs_to_the_planner(store: RuleStore, tmp_path: Path) -> None:
    add(store, rule("one"))
    reader = reader_of(Log(5), tmp_path)
    reader.prepareForTriggerAvailableNow()
    copy = pickle.loads(pickle.dumps(reader))
    assert (vars(copy)["_log"], vars(copy)["_fixed"]) == (None, None)
    assert vars(copy)["_judged"] == vars(reader)["_judged"]


def test_a_batch_is_judged_by_the_version_that_was_taken_at_its_start(store: RuleStore, tmp_path: Path) -> None:
    add(store, rule("one"))
    judged = Judged(str(tmp_path / "store"), str(tmp_path / "job"), version=1)
    add(store, rule("two"))
    reader = HitsBatchReader(HitsSpec("n", "t", (), Position(), final_tick=True, judged=judged))
    assert [part.rules for part in reader.partitions() if isinstance(part, TopicPartition)] == [1]
