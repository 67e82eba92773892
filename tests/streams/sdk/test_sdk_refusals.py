"""What the SDK refuses, and in what words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.streams.errors import JobError, SqlError
from millstream.streams.sdk import Pattern, Stream, StreamBuilder, tumbling


def events(**options: str) -> Stream:
    return StreamBuilder("job").source("events", schema={"host": str, "bytes": int}, **options)  # type: ignore[arg-type]


def test_a_misspelled_column_is_pointed_at_in_the_users_own_text() -> None:
    with pytest.raises(SqlError) as caught:
        events().filter("bites > 3")
    assert 'Did you mean "bytes"?' in str(caught.value)
    line, caret = str(caught.value).splitlines()[-2:]
    assert line[caret.index("^") :].startswith("bites > 3")
    assert caret.count("^") == len("bites")


def test_a_window_without_event_time_says_how_to_get_it() -> None:
    with pytest.raises(SqlError, match="no columns of event time") as caught:
        events().key_by("host").window(tumbling("10 s"))
    assert caught.value.name == "SQL_TIME_ATTRIBUTE"
    assert "watermark" in caught.value.remedy


@pytest.mark.parametrize("text", ["10 parsecs", "soon", "", "1.5 s"])
def test_a_text_that_is_no_duration_is_shown(text: str) -> None:
    with pytest.raises(SqlError, match="is no duration") as caught:
        events(watermark="5 s").key_by("host").window(tumbling(text)).count()
    assert repr(text) in str(caught.value)


def test_a_changing_result_needs_a_key_to_become_messages() -> None:
    with pytest.raises(SqlError, match="only takes new rows") as caught:
        events().key_by("host").count().sink("counts")
    assert "upsert-rocketmq" in str(caught.value)


def test_a_key_that_is_no_column_is_refused() -> None:
    with pytest.raises(SqlError, match='no column "hots"'):
        events().key_by("host").count().sink("counts", key="hots")


def test_a_job_without_an_output_is_refused() -> None:
    with pytest.raises(JobError, match="has no output"):
        events().builder.plan()


def test_a_job_does_not_read_a_table_under_two_sets_of_options() -> None:
    builder = events().builder
    builder.from_sql("SELECT host FROM events").print()
    builder.plan()
    builder.from_sql("SELECT host FROM events /*+ OPTIONS('tag' = 'x') */").print()
    with pytest.raises(SqlError, match="in two ways: 'tag' differs") as caught:
        builder.plan()
    assert "LIKE events" in (caught.value.remedy or "")


@pytest.mark.parametrize("job_id", ["", "a/b", "../x", "-x", "x" * 101])
def test_an_id_that_is_no_name_is_refused(job_id: str) -> None:
    with pytest.raises(JobError, match="is no id of a job"):
        StreamBuilder(job_id)


def test_a_select_in_sql_is_refused() -> None:
    with pytest.raises(SqlError, match="go nowhere"):
        StreamBuilder("job").sql("SELECT 1")


def test_two_streams_cannot_have_one_name_in_sql() -> None:
    stream = events()
    with pytest.raises(SqlError, match="already"):
        stream.filter("bytes > 1").to_table("events")


def test_keys_of_a_join_come_in_pairs() -> None:
    stream = events()
    with pytest.raises(SqlError, match="2 keys, the right side 1"):
        stream.key_by("host", "bytes").join(stream.key_by("host"))


def test_late_rows_are_refused_where_a_window_is_final() -> None:
    windows = events(watermark="5 s").key_by("host").window(tumbling("10 s"), allow_lateness="1 min")
    with pytest.raises(SqlError, match="at their end only"):
        windows.rows()


class TestPatterns:
    def test_nothing_may_lie_between_a_part_and_the_next(self) -> None:
        assert Pattern.begin("a").next("b", "x > 1").text == "(`a` `b`)"

    def test_anything_may_lie_between_parts_that_follow(self) -> None:
        assert Pattern.begin("a").followed_by("b", "x > 1").text == "(`a` `before_b`*? `b`)"

    def test_rows_that_lie_between_are_none_of_the_part_that_follows(self) -> None:
        assert Pattern.begin("a").followed_by("b", "x > 1").unless == (("before_b", "b"),)
        assert Pattern.begin("a").followed_by_any("b", "x > 1").unless == ()

    @pytest.mark.parametrize(
        ("build", "text"),
        [
            (lambda a: a.times(3), "(`a`{3})"),
            (lambda a: a.times(2, 5), "(`a`{2,5})"),
            (lambda a: a.one_or_more(), "(`a`+)"),
            (lambda a: a.optional(), "(`a`?)"),
            (lambda a: a.times(3, apart=True), "((`a` (`between_a`*? `a`){2}))"),
            (lambda a: a.times(1, 3, apart=True), "((`a` (`between_a`*? `a`){0,2}))"),
            (lambda a: a.times(1, 2, apart=True), "((`a` (`between_a`*? `a`)?))"),
            (lambda a: a.times(1, apart=True), "((`a`))"),
            (lambda a: a.one_or_more(apart=True), "((`a` (`between_a`*? `a`)*))"),
        ],
    )
    def test_a_part_that_repeats_stands_in_a_row_or_apart(self, build: Callable[[Pattern], Pattern], text: str) -> None:
        assert build(Pattern.begin("a", "x > 1")).text == text

    def test_what_must_not_lie_between_is_a_condition_of_the_gap(self) -> None:
        pattern = Pattern.begin("a", "x = 1").not_followed_by("x = 2").followed_by("b", "x = 3")
        assert "`before_b` AS NOT (x = 2)" in pattern.query((), "ts", {"n": "b.x"}, "PAST LAST ROW")

    def test_what_must_not_come_next_is_a_condition_of_the_next_part(self) -> None:
        pattern = Pattern.begin("a", "x = 1").not_next("x = 2").next("b")
        assert "`b` AS (TRUE) AND NOT (x = 2)" in pattern.query((), "ts", {"n": "b.x"}, "PAST LAST ROW")

    def test_a_pattern_cannot_end_with_what_must_not_come(self) -> None:
        with pytest.raises(SqlError, match="cannot end"):
            _ = Pattern.begin("a").not_next("x = 2").text

    def test_a_refusal_and_the_part_behind_it_must_fit(self) -> None:
        with pytest.raises(SqlError, match="Behind not_followed_by comes followed_by"):
            Pattern.begin("a").not_followed_by("x = 2").next("b")

    def test_two_parts_of_one_name_are_refused(self) -> None:
        with pytest.raises(SqlError, match='two parts "a"'):
            Pattern.begin("a").next("a")
