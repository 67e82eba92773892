"""What tools ask of the copies of a broker: whether the files of a table are there, and which ones nobody names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from column_bench import BROKER, CLUSTER, CopyBench

from millstream.broker import cold_tier, column_checks, column_copies
from millstream.broker.column_copies import REMOVED_GRACE_MS
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.cold_checks import ColdProblem
from millstream.tiered.columns import iceberg_tables
from millstream.tiered.columns.column_map import ColumnTopic, data_prefix


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the broker does by itself is done by the tests."""
    for module, names in (
        (cold_tier, ("UPLOAD_INTERVAL_S", "CLEAN_INTERVAL_S")),
        (column_copies, ("COPY_INTERVAL_S", "CLEAN_INTERVAL_S")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, 1e6)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[CopyBench]:
    made = CopyBench(tmp_path)
    await made.open()
    yield made
    await made.close()


async def copy_twice(bench: CopyBench) -> list[str]:
    """The keys of the files of two rounds."""
    for _ in range(2):
        await bench.send(20)
        await bench.upload()
        await bench.copy()
    return sorted(bench.broker.columns.map.present("t"))


async def verify(bench: CopyBench) -> tuple[int, list[ColdProblem]]:
    files, problems = 0, list[ColdProblem]()
    after = bench.broker.column_checks.first_position()
    while after:
        found = await bench.broker.column_checks.verify(after, 1)
        files, problems, after = files + found.objects, problems + found.problems, found.after
    return files, problems


async def collect(bench: CopyBench, *, deletes: bool = True) -> list[str]:
    """The orphans, whatever the broker knows of them deleted."""
    orphans, after = list[str](), bench.broker.column_checks.first_position()
    while after:
        found = await bench.broker.column_checks.collect(after, deletes=deletes)
        orphans, after = [*orphans, *(one.key for one in found.orphans)], found.after
    return orphans


@pytest.mark.parametrize("tables", [True, False])
async def test_each_file_that_is_missing_or_of_another_length_is_named(tmp_path: Path, tables: bool) -> None:
    bench = CopyBench(tmp_path, tables=tables)
    await bench.open()
    keys = await copy_twice(bench)
    assert len(keys) >= 2
    assert await verify(bench) == (len(keys), [])
    size_bytes = len(bench.objects.objects[keys[0]])
    bench.objects.objects[keys[0]] += b"?"
    del bench.objects.objects[keys[-1]]
    files, problems = await verify(bench)
    assert files == len(keys)
    assert problems == [
        ColdProblem(keys[0], ["t"], f"it has {size_bytes + 1} bytes, not {size_bytes}"),
        ColdProblem(keys[-1], ["t"], "the object store does not have it"),
    ]
    await bench.close()


async def test_a_file_that_the_table_alone_names_is_looked_for(bench: CopyBench) -> None:
    keys = await copy_twice(bench)
    bench.broker.columns._write([(keys[0], None)])
    del bench.objects.objects[keys[0]]
    assert await verify(bench) == (len(keys), [ColdProblem(keys[0], ["t"], "the object store does not have it")])


async def test_a_table_whose_metadata_is_lost_is_one_problem_and_ends_no_look(bench: CopyBench) -> None:
    await copy_twice(bench)
    bench.broker.topics.create(TopicConfig("u", attributes=bench.attributes))
    await bench.broker.columns.copy_due()
    for key in [key for key in bench.objects.objects if key.endswith(".metadata.json")]:
        del bench.objects.objects[key]
    files, [problem] = await verify(bench)
    assert files == 0
    assert problem.key == f"columns/{CLUSTER}/t/"
    assert "cannot be read" in problem.problem


async def test_a_look_in_many_parts_sees_each_file_of_each_topic_once(
    bench: CopyBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = await copy_twice(bench)
    # Its name is behind that of `t`, and its keys are before those of `t`.
    other = f"{data_prefix(CLUSTER, 't-2', BROKER)}{'0' * 20}-{'1' * 20}-ab.parquet"
    row = replace(bench.broker.columns.map.files["t"][keys[0]], topic="t-2")
    bench.broker.columns._write([("t-2", ColumnTopic()), (other, row)])
    del bench.objects.objects[keys[-1]]
    missing = "the object store does not have it"
    wanted = len(keys) + 1, [ColdProblem(other, ["t-2"], missing), ColdProblem(keys[-1], ["t"], missing)]
    assert await verify(bench) == wanted
    monkeypatch.setattr(iceberg_tables, "LISTED_FILES", 1)
    assert await verify(bench) == wanted
    monkeypatch.setattr(column_checks, "VERIFIED_FILES", 1)
    assert await verify(bench) == wanted


async def test_only_own_files_that_nothing_names_and_that_are_old_are_orphans(bench: CopyBench) -> None:
    kept = await copy_twice(bench)
    # No row names it any more, and a snapshot does.
    bench.broker.columns._write([(kept[0], None)])
    own, name = data_prefix(CLUSTER, "t", BROKER), f"{0:020}-{9:020}-abcdef0123456789.parquet"
    orphan, young = f"{own}{name}", f"{own}{name.replace('9', '8')}"
    gone_topic = f"{data_prefix(CLUSTER, 'gone', BROKER)}{name}"
    others = (
        f"{data_prefix(CLUSTER, 't', 'broker-b')}{name}",
        f"{data_prefix('other', 't', BROKER)}{name}",
        f"{own}by-hand.parquet",
    )
    for key in (orphan, young, gone_topic, *others):
        bench.objects.put(key, b"whatever")
    bench.clock.advance_ms(10 * REMOVED_GRACE_MS)
    bench.objects._modified_ms[young] = bench.clock.now_ms() - REMOVED_GRACE_MS
    before = {*bench.objects.objects}
    assert sorted(await collect(bench, deletes=False)) == sorted([gone_topic, orphan])
    assert {*bench.objects.objects} == before
    assert sorted(await collect(bench)) == sorted([gone_topic, orphan])
    assert {*bench.objects.objects} == before - {gone_topic, orphan}
    assert await verify(bench) == (len(kept), [])


async def test_files_of_an_old_snapshot_are_no_orphans_before_it_is_forgotten(bench: CopyBench) -> None:
    keys = await copy_twice(bench)
    columns = bench.broker.columns
    # The table lets go of it, the row goes as well, and the snapshot before still names it.
    columns._write([(keys[0], None)])
    columns._untold["t"] = 0
    await columns.copy_due()
    bench.clock.advance_ms(10 * REMOVED_GRACE_MS)
    assert await collect(bench) == []
    # It is no loss either, whether it is there or not.
    lost = bench.objects.objects.pop(keys[0])
    assert await verify(bench) == (len(keys) - 1, [])
    bench.objects.objects[keys[0]] = lost
    assert columns.work is not None
    await columns.work.tidy_table(CLUSTER, "t", 1 << 50)
    assert await collect(bench) == [keys[0]]


async def test_nothing_is_deleted_where_it_cannot_be_told_what_a_table_names(bench: CopyBench) -> None:
    keys = await copy_twice(bench)
    bench.broker.columns._write([(keys[0], None)])
    bench.clock.advance_ms(10 * REMOVED_GRACE_MS)
    for key in [key for key in bench.objects.objects if key.endswith(".metadata.json")]:
        del bench.objects.objects[key]
    with pytest.raises(MillstreamError, match="cannot be read") as refused:
        await collect(bench)
    assert refused.value.name == "TABLE_REFUSED"
    assert {*keys} <= {*bench.objects.objects}


async def test_no_file_is_begun_that_is_on_its_way_out(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    columns = bench.broker.columns
    await columns.copy_due()
    [key] = columns.map.present("t")
    # As after a restore: the file is there and its row is not.
    row = columns.map.files["t"][key]
    columns._write([(key, None), ("t", columns.map.topics["t"])])
    columns._looked_at.clear()
    with columns.without_copies_to([key]) as free:
        assert free == [key]
        assert not await columns.copy_due()
        assert key not in columns.map.files.get("t", {})
    await columns.copy_due()
    assert columns.map.present("t") == {key: row}
    with columns.without_copies_to([key]) as free:
        assert free == []


async def test_a_broker_that_copies_nothing_has_nothing_to_look_at(bench: CopyBench) -> None:
    await copy_twice(bench)
    await bench.broker.columns.close()
    assert bench.broker.column_checks.first_position() == ""
    with pytest.raises(MillstreamError, match="copies nothing"):
        await bench.broker.column_checks._list_table("t", "")
