"""INSERT: which column goes where, partitions, OVERWRITE, VALUES and EMIT."""

from __future__ import annotations

import pytest
from compiling import job, refused

from millstream.streams.plan.aggregates import WindowAggregate
from millstream.streams.plan.nodes import Filter, Node, Project, inputs_of
from millstream.streams.plan.types import TypeKind
from millstream.streams.plan.windows import Emit

OUT = "CREATE TABLE o (a INT, b STRING, n BIGINT NOT NULL) WITH ('connector' = 'print');"
FILES = (
    "CREATE TABLE f (id BIGINT, dt STRING, hm STRING) PARTITIONED BY (dt, hm)"
    " WITH ('connector' = 'filesystem', 'path' = '/x', 'format' = 'csv');"
)
WINDOW = "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
COUNTED = WINDOW.replace("window_start, COUNT(*)", "window_start, window_end, host, COUNT(*) AS n") + ", host"
COUNTS = "CREATE TABLE w (s TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');"


def filled(script: str) -> dict[str, str]:
    (sink,) = job(script).sinks
    assert isinstance(sink.input, Project)
    assert [name for name, _ in sink.input.columns] == [column.name for column in sink.table.writable]
    return {name: str(value) for name, value in sink.input.columns}


def emission(script: str) -> Emit | None:
    node: Node = job(COUNTS + script).sinks[0].input
    while not isinstance(node, WindowAggregate):
        (node,) = inputs_of(node)
    return node.emit


def test_columns_that_are_not_named_are_null_and_those_that_are_come_in_the_order_of_the_table() -> None:
    assert filled(f"{OUT} INSERT INTO o (n, a) SELECT id, small FROM events") == {"a": "small", "b": "NULL", "n": "id"}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("(a, b) SELECT small, host", '"n" of "o" is never NULL'),
        ("(n, n) SELECT id, id", "named twice"),
        ("(n, m) SELECT id, id", 'no column "m"'),
    ],
)
def test_a_list_of_columns_that_does_not_fit_is_refused(columns: str, said: str) -> None:
    error = refused(f"{OUT} INSERT INTO o {columns} FROM events")
    assert said in error.message


def test_a_partition_gives_columns_that_the_query_does_not() -> None:
    static = filled(f"{FILES} INSERT INTO f PARTITION (dt = '2024-01-01', hm = '10:00') SELECT id FROM events")
    assert static == {"id": "id", "dt": "'2024-01-01'", "hm": "'10:00'"}
    mixed = filled(f"{FILES} INSERT INTO f PARTITION (dt = '2024-01-01', hm) SELECT id, host FROM events")
    assert mixed == {"id": "id", "dt": "'2024-01-01'", "hm": "host"}
    assert (
        "none of the columns"
        in refused(f"{FILES} INSERT INTO f PARTITION (id = 1) SELECT host, host FROM events").message
    )


def test_overwrite_needs_a_batch_job_and_files() -> None:
    batch = "SET 'execution.runtime-mode' = 'batch';"
    (sink,) = job(f"{batch} {FILES} INSERT OVERWRITE f SELECT id, host, host FROM events").sinks
    assert sink.overwrites
    assert "job that ends" in refused(f"{FILES} INSERT OVERWRITE f SELECT id, host, host FROM events").message
    assert (
        "cannot be overwritten"
        in refused(f"{batch} {OUT} INSERT OVERWRITE o SELECT small, host, id FROM events").message
    )


def test_values_are_rows_of_their_own() -> None:
    (sink,) = job(f"{OUT} INSERT INTO o VALUES (1, 'x', 2), (3, NULL, 4)").sinks
    assert sink.input.schema.names == ("a", "b", "n")


def test_a_hint_gives_the_table_other_options_for_one_insert() -> None:
    (sink,) = job(
        f"{OUT} INSERT INTO o /*+ OPTIONS('print-identifier' = 'x') */ SELECT small, host, id FROM events"
    ).sinks
    assert sink.table.options == {"connector": "print", "print-identifier": "x"}
    assert (
        refused(f"{OUT} INSERT INTO o /*+ OPTIONS('colour' = 'x') */ SELECT small, host, id FROM events").name
        == "SQL_OPTION"
    )


def test_rows_without_a_value_for_a_column_that_is_never_null_are_left_out_if_it_is_asked() -> None:
    drop = "SET 'table.exec.sink.not-null-enforcer' = 'drop';"
    (sink,) = job(f"{OUT} {drop} INSERT INTO o SELECT small, host, id FROM events").sinks
    (rows,) = inputs_of(sink.input)
    assert isinstance(rows, Filter)
    assert str(rows.predicate) == "IS NOT NULL(id)"
    (sure,) = job(f"{OUT} {drop} INSERT INTO o SELECT small, host, 1 FROM events").sinks
    assert not isinstance(inputs_of(sure.input)[0], Filter)


SIZED = "CREATE TABLE z (v VARCHAR(3), c CHAR(3), b VARBINARY(2)) WITH ('connector' = 'print');"
DECLARED = """CREATE TABLE d (v VARCHAR(3), short VARCHAR(2), c CHAR(3), b VARBINARY(2))
WITH ('connector' = 'datagen', 'number-of-rows' = '1');"""


def test_texts_and_bytes_are_brought_to_the_lengths_of_their_columns() -> None:
    assert filled(f"{SIZED} INSERT INTO z SELECT host, host AS h, CAST(host AS BYTES) AS b FROM events") == {
        "v": "CAST(host AS VARCHAR(3))",
        "c": "CAST(h AS CHAR(3))",
        "b": "CAST(b AS VARBINARY(2))",
    }
    assert filled(f"{SIZED} INSERT INTO z (v, c) SELECT 'abc' AS p, 'x' AS q FROM events") == {
        "v": "p",
        "c": "CAST(q AS CHAR(3) NOT NULL)",
        "b": "NULL",
    }
    parted = FILES.replace("dt STRING", "dt CHAR(4)")
    assert filled(f"{parted} INSERT INTO f PARTITION (dt = '24', hm = '1') SELECT id FROM events")["dt"] == "'24  '"
    assert filled(f"{SIZED} INSERT INTO z (v) SELECT id FROM events")["v"] == "CAST(id AS VARCHAR(3))"


def test_a_length_that_a_type_declares_is_believed_unless_it_is_asked_not_to_be() -> None:
    believed = {"v": "v", "c": "c", "b": "b"}
    assert filled(f"{SIZED} {DECLARED} INSERT INTO z SELECT v, c, b FROM d") == believed
    assert filled(f"{SIZED} {DECLARED} INSERT INTO z (v, c) SELECT short, short AS s FROM d") == {
        "v": "short",
        "c": "CAST(s AS CHAR(3))",
        "b": "NULL",
    }
    enforced = "SET 'table.exec.sink.type-length-enforcer' = 'TRIM_PAD';"
    assert filled(f"{SIZED} {DECLARED} {enforced} INSERT INTO z SELECT v, c, b FROM d") == {
        "v": "CAST(v AS VARCHAR(3))",
        "c": "CAST(c AS CHAR(3))",
        "b": "CAST(b AS VARBINARY(2))",
    }


def test_a_key_with_a_length_still_has_to_tell_the_rows_apart() -> None:
    table = """CREATE TABLE k (host VARCHAR(9), n BIGINT, PRIMARY KEY (host) NOT ENFORCED)
    WITH ('connector' = 'upsert-rocketmq', 'topic' = 't');"""
    assert filled(f"{table} INSERT INTO k SELECT host, COUNT(*) FROM events GROUP BY host")["n"]
    error = refused(f"{table} INSERT INTO k SELECT MAX(host), id FROM events GROUP BY id")
    assert "does not tell the rows" in error.message


def test_a_view_is_not_written() -> None:
    assert (
        "is a view"
        in refused("CREATE VIEW v AS SELECT host FROM events; INSERT INTO v SELECT host FROM events").message
    )


@pytest.mark.parametrize(
    ("tail", "emit"),
    [
        ("", None),
        ("EMIT WITH DELAY '5' SECOND BEFORE WATERMARK", Emit(5000)),
        ("EMIT WITHOUT DELAY BEFORE WATERMARK", Emit(0)),
        ("EMIT WITH DELAY '1' MINUTE AFTER WATERMARK", Emit(None, 60_000, 3_600_000)),
        ("EMIT WITH DELAY '5' SECOND BEFORE WATERMARK, WITHOUT DELAY AFTER WATERMARK", Emit(5000, 0, 3_600_000)),
        ("EMIT WITHOUT DELAY", Emit(0, 0, 3_600_000)),
    ],
)
def test_emit_says_when_windows_speak_beside_their_end(tail: str, emit: Emit | None) -> None:
    assert emission(f"INSERT INTO w {WINDOW} {tail}") == emit


def test_settings_say_so_for_all_windows() -> None:
    early = "SET 'table.exec.emit.early-fire.enabled' = 'true'; SET 'table.exec.emit.early-fire.delay' = '5 s';"
    late = "SET 'table.exec.emit.late-fire.enabled' = 'true'; SET 'table.exec.emit.allow-lateness' = '1 h';"
    assert emission(f"{early} INSERT INTO w {WINDOW}") == Emit(5000)
    assert emission(f"{late} INSERT INTO w {WINDOW}") == Emit(None, 0, 3_600_000)


def test_windows_that_are_read_as_final_and_sessions_speak_at_their_end_only() -> None:
    top = f"SELECT window_start, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS place FROM ({COUNTED})) WHERE place = 1"
    session = (
        "SELECT SESSION_START(ts, INTERVAL '1' HOUR), COUNT(*) FROM events GROUP BY SESSION(ts, INTERVAL '1' HOUR)"
    )
    early = "SET 'table.exec.emit.early-fire.enabled' = 'true';"
    for rows in (top, session):
        assert emission(f"{early} INSERT INTO w {rows}") is None
        error = refused(f"{COUNTS} INSERT INTO w {rows} EMIT WITHOUT DELAY BEFORE WATERMARK")
        assert "no window whose rows may change" in error.message
    plain = refused(f"{COUNTS} INSERT INTO w SELECT ts, id FROM events EMIT WITHOUT DELAY")
    assert "no window" in plain.message


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("EMIT BEFORE WATERMARK", "WITH DELAY or WITHOUT DELAY"),
        ("EMIT WITH DELAY '1' MONTH BEFORE WATERMARK", "without months"),
        ("EMIT WITHOUT DELAY BEFORE WATERMARK, WITHOUT DELAY BEFORE WATERMARK", "says twice"),
        ("EMIT WITHOUT DELAY BEFORE", "WATERMARK"),
    ],
)
def test_an_emit_that_says_nothing_clear_is_refused(tail: str, said: str) -> None:
    assert said in refused(f"{COUNTS} INSERT INTO w {WINDOW} {tail}").message


def test_a_literal_of_a_partition_has_the_column_s_type() -> None:
    made = "CREATE TABLE f (a INT, y BIGINT) PARTITIONED BY (y) WITH ('connector' = 'filesystem', 'path' = '/x');"
    (sink,) = job(f"{made} INSERT INTO f PARTITION (y = 7) SELECT small FROM events").sinks
    assert isinstance(sink.input, Project)
    value = dict(sink.input.columns)["y"]
    assert (str(value), value.type.kind) == ("CAST(7 AS BIGINT NOT NULL)", TypeKind.BIGINT)
