"""Operators of ours in a stage: rows packed by bucket, state kept in files, micro-batches repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.streams.connectors.rocketmq.reader import WAKE_TIME_MS
from millstream.streams.errors import JobError
from millstream.streams.operators.key_groups import KeyGroups
from millstream.streams.operators.operator import START_OF_TIME_US
from millstream.streams.operators.ranking import OrderColumn, Ranker
from millstream.streams.operators.state import OpenEnds, OperatorState
from millstream.streams.spark.operators import stage as stages
from millstream.streams.spark.operators.clocks import Clocks, Seen, look
from millstream.streams.spark.operators.operator_reports import ends_by_operator, open_ends_spool
from millstream.streams.spark.operators.packing import OF_EACH_ROW, Packer
from millstream.streams.spark.operators.stage import OperatorSpec, OperatorStage
from millstream.streams.spark.runtime.micro_batch import ToldTime
from millstream.streams.state.state_files import LocalStateFiles

OUTPUT = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("score", pa.int64()),
        pa.field("__kind", pa.int8()),
        pa.field("__tick", pa.timestamp("us", "UTC")),
    ]
)
GROUPS = KeyGroups(4, 2)


def packed(
    rows: Sequence[tuple[str, int]], *, queue: str = "q/0", times: Sequence[int | None] = (), tick: int | None = None
) -> Iterator[pa.RecordBatch]:
    """What a packing stage makes of rows and, at their end, of a tick."""
    times = [*(times or [None] * len(rows)), *([None] if tick is not None else [])]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([*(name for name, _ in rows), *([None] if tick is not None else [])], pa.string()),
            pa.array([*(score for _, score in rows), *([None] if tick is not None else [])], pa.int64()),
            pa.array(
                [*(ord(name[0]) % GROUPS.count for name, _ in rows), *([None] if tick is not None else [])], pa.int32()
            ),
            pa.array([queue] * len(rows) + ([None] if tick is not None else []), pa.string()),
            pa.array(times, pa.int64()),
            pa.array([None] * len(rows) + ([tick] if tick is not None else []), pa.int64()),
        ],
        names=["c0", "c1", *OF_EACH_ROW],
    )
    return Packer(0, GROUPS, width=2, kinds=False, source=0)(iter([batch]))


def spec(directory: Path) -> OperatorSpec:
    make = partial(Ranker, (0,), (OrderColumn(1, ascending=False),), "ROW_NUMBER", 1, 1, ranked=False)
    state, late = LocalStateFiles(directory / "state"), str(directory / "late")
    return OperatorSpec("job", "top", make, GROUPS, state, (2,), (0,), OUTPUT, late, ToldTime(1))


def run(
    spec: OperatorSpec, batch_id: int, packed_rows: Iterator[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str | None, int | None, int | None]]:
    monkeypatch.setattr(stages, "micro_batch", lambda: batch_id)
    return [
        (row["name"], row["score"], row["__kind"])
        for batch in OperatorStage(spec)(packed_rows)
        for row in batch.to_pylist()
        if row["__tick"] is None
    ]


@pytest.mark.parametrize("new_process", [False, True])
def test_state_goes_on_from_one_micro_batch_to_the_next(
    new_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = spec(tmp_path)
    assert run(top, 0, packed([("a", 1), ("b", 5), ("a", 3)]), monkeypatch) == [("a", 3, 0), ("b", 5, 0)]
    if new_process:
        stages._kept_states.clear()
    assert run(top, 1, packed([("a", 2), ("b", 6)]), monkeypatch) == [("b", 5, 1), ("b", 6, 2)]


@pytest.mark.parametrize("new_process", [False, True])
def test_a_repeated_micro_batch_says_the_same_again(
    new_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = spec(tmp_path)
    run(top, 0, packed([("a", 1)]), monkeypatch)
    first = run(top, 1, packed([("a", 7), ("c", 1)]), monkeypatch)
    if new_process:
        stages._kept_states.clear()
    assert first == [("a", 1, 1), ("a", 7, 2), ("c", 1, 0)]
    assert run(top, 1, packed([("a", 7), ("c", 1)]), monkeypatch) == first
    assert run(top, 2, packed([("a", 8)]), monkeypatch) == [("a", 7, 1), ("a", 8, 2)]


def test_a_worker_that_missed_micro_batches_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = spec(tmp_path)
    run(top, 0, packed([("a", 1)]), monkeypatch)
    kept = stages._kept_states.items()
    stages._kept_states.clear()
    run(top, 1, packed([("a", 2)]), monkeypatch)
    stages._kept_states.clear()
    for key, bucket in kept:
        stages._kept_states.put(key, bucket)
    assert run(top, 2, packed([("a", 3)]), monkeypatch) == [("a", 2, 1), ("a", 3, 2)]


def test_what_waits_for_the_watermark_is_told_with_the_earliest_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = (OrderColumn(1, ascending=False),)
    make = partial(Ranker, (0,), order, "ROW_NUMBER", 1, 1, ranked=False, window_end=1)
    windows, ends = replace(spec(tmp_path), make=make), open_ends_spool(tmp_path / "late")
    run(windows, 0, packed([("a", 9_001_000), ("b", 5_001_000), ("c", 7_001_000)]), monkeypatch)
    assert ends_by_operator(ends.take()) == {"top": OpenEnds(3, 5_000_000)}
    run(windows, 1, packed([], tick=5_000_000), monkeypatch)
    assert ends_by_operator(ends.take()) == {"top": OpenEnds(2, 7_000_000)}
    run(windows, 2, packed([], tick=9_000_000), monkeypatch)
    assert ends_by_operator(ends.take()) == {"top": OpenEnds()}


def test_a_damaged_state_file_is_told_and_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = spec(tmp_path)
    run(top, 0, packed([("a", 1)]), monkeypatch)
    stages._kept_states.clear()
    [file] = (tmp_path / "state").glob("0.0-1.delta")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(JobError, match="damaged") as refusal:
        run(top, 1, packed([("a", 2)]), monkeypatch)
    assert refusal.value.name == "CHECKPOINT_DAMAGED"


def test_every_task_hears_the_least_time_of_all_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = spec(tmp_path)
    run(top, 0, packed([("a", 1)], times=[500]), monkeypatch)
    run(top, 1, packed([("b", 1)], times=[300], queue="q/1"), monkeypatch)
    # The slow queue holds the watermark: 300 of it, 700 of the other.
    monkeypatch.setattr(stages, "micro_batch", lambda: 2)
    ticks = [
        row["__tick"].timestamp() * 1e6
        for batch in OperatorStage(top)(packed([("c", 1)], times=[700]))
        for row in batch.to_pylist()
        if row["__tick"] is not None
    ]
    assert [round(tick) for tick in ticks] == [500, 500]
    later = OperatorStage(top)(packed([("a", 1)], times=[900], tick=800))
    monkeypatch.setattr(stages, "micro_batch", lambda: 3)
    found = {row["__tick"] for batch in later for row in batch.to_pylist() if row["__tick"] is not None}
    assert [round(tick.timestamp() * 1e6) for tick in found] == [800]
    assert START_OF_TIME_US < 0


@pytest.mark.parametrize("new_process", [False, True])
def test_an_operator_tells_the_one_behind_it_that_its_inputs_are_idle(
    new_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = replace(spec(tmp_path), idle_ms={0: 1_000}, now_us=lambda: at_us)
    behind = Clocks([0, 9], {}, OperatorState())
    reached = []
    turns = [(0, [("a", 1)], 500), (900_000, [], 0), (2_000_000, [], 0), (3_000_000, [("a", 2)], 600)]
    for batch_id, (at_us, rows, time_us) in enumerate(turns):
        monkeypatch.setattr(stages, "micro_batch", lambda number=batch_id: number)
        tick = None if rows else WAKE_TIME_MS * 1_000
        said = OperatorStage(silent)(packed(rows, times=[time_us] * len(rows), tick=tick))
        seen: dict[int, Seen] = {}
        for batch in said:
            look(ticks_of(batch), seen, 0)
        reached.append(behind.advance({**seen, 9: Seen(None, {"q": 10_000 + batch_id})}, now_us=at_us))
        if new_process:
            stages._kept_states.clear()
    assert reached == [500, 500, 10_002, 10_002]
    assert behind.advance({9: Seen(None, {"q": 20_000})}, now_us=9) == 10_002


def ticks_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What an operator's rows tell the one behind it of event time."""
    nothing = pa.nulls(batch.num_rows)
    ticks = batch.column("__tick").cast(pa.int64())
    columns = {"queue": nothing.cast(pa.string()), "time_us": nothing.cast(pa.int64()), "tick_us": ticks}
    return pa.RecordBatch.from_pydict(columns)
