"""Python functions as steps of a job: what they read and make, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from millstream.streams.errors import SqlError
from millstream.streams.jobs.checkpoint import fingerprint
from millstream.streams.plan.nodes import Scan, scans_of
from millstream.streams.plan.user_calls import OnError, PythonRows
from millstream.streams.sdk import Row, Stream, StreamBuilder


class Word(NamedTuple):
    word: str
    length: int


@dataclass
class Host:
    host: str


class Packed(msgspec.Struct):
    host: str
    size: int | None


def words(row: Row) -> Iterator[Word]:
    return (Word(word, len(word)) for word in row.line.split())


def short(row: Host) -> Host:
    return Host(row.host[:3])


def packed(row: Row) -> Packed:
    return Packed(row.host, None)


def events() -> Stream:
    schema = {"host": str, "line": str, "bytes": int}
    return StreamBuilder("job").source("events", schema=schema, watermark="5 s")


def types(stream: Stream) -> dict[str, str]:
    return {field.name: str(field.type) for field in stream.schema.fields}


def test_annotations_give_the_columns() -> None:
    assert types(events().drop("event_time").flat_map(words)) == {"word": "STRING", "length": "BIGINT"}
    assert types(events().drop("event_time").map(packed)) == {"host": "STRING", "size": "BIGINT"}


def test_a_schema_goes_before_annotations() -> None:
    stream = events().drop("event_time").map(lambda row: (1, "a"), schema="n INT, tag VARCHAR(3)")
    assert types(stream) == {"n": "INT", "tag": "VARCHAR(3)"}


def test_one_value_is_called_value() -> None:
    def length(row: Row) -> int:
        return len(row.line)

    assert types(events().drop("event_time").map(length)) == {"value": "BIGINT"}


def test_event_time_goes_along_and_is_still_event_time() -> None:
    stream = events().map(packed)
    assert [field.name for field in stream.schema.fields if field.rowtime] == ["event_time"]


def test_keys_go_along_with_map_and_not_with_flat_map() -> None:
    keyed = events().key_by("bytes")
    assert keyed.map(packed).stream.columns == ("host", "size", "bytes", "event_time")
    assert keyed.flat_map(words).columns == ("word", "length", "event_time")


def test_a_class_of_rows_is_all_that_is_read_of_the_source() -> None:
    builder = events().map(short).print().builder
    (sink,) = builder.plan().sinks
    (scan,) = scans_of(sink.input)
    assert scan.columns == ("host", "event_time")


def test_a_filter_in_python_keeps_the_columns() -> None:
    assert events().filter(lambda row: row.bytes > 3).schema == events().schema


def test_labels_of_a_function_are_no_column() -> None:
    assert events().split(lambda row: "a").select("a").columns == events().columns


def test_the_plan_is_that_of_the_types_whatever_a_function_does() -> None:
    def node(function: Any) -> PythonRows:
        found = events().map(function, schema={"n": int}).node
        assert isinstance(found, PythonRows)
        return found

    def one(row: Row) -> int:
        return 1

    first = node(one)

    def one(row: Row) -> int:  # type: ignore[no-redef]
        return 2

    second = node(one)
    assert first == second
    assert fingerprint([("o", first)]) == fingerprint([("o", second)])


def test_explain_shows_the_function() -> None:
    assert "Python flat_map words(host, line, bytes, event_time) made=[word STRING, length BIGINT]" in (
        events().flat_map(words).explain()
    )


class TestOnError:
    def test_rows_of_a_topic_go_to_its_dead_letters(self) -> None:
        node = events().map(short).node
        assert isinstance(node, PythonRows)
        assert node.code.on_error is OnError.DEAD_LETTER

    def test_without_a_topic_the_job_ends(self) -> None:
        builder = StreamBuilder("job").sql("CREATE TABLE t (host STRING) WITH ('connector' = 'datagen')")
        node = builder.table("t").map(short).node
        assert isinstance(node, PythonRows)
        assert node.code.on_error is OnError.FAIL
        with pytest.raises(SqlError, match="no dead-letter topic"):
            builder.table("t").map(short, on_error="dead-letter")

    def test_another_choice_is_refused_with_the_choices(self) -> None:
        with pytest.raises(SqlError, match="cannot be 'ignore'") as caught:
            events().map(short, on_error="ignore")  # type: ignore[arg-type]
        assert "dead-letter, skip, fail" in caught.value.remedy


class TestRefused:
    def test_a_lambda_without_types(self) -> None:
        with pytest.raises(SqlError, match="<lambda> makes are not known") as caught:
            events().map(lambda row: 1)
        assert "schema=" in caught.value.remedy

    def test_a_class_with_fields_that_are_no_columns(self) -> None:
        with pytest.raises(SqlError, match="wants host, and the stream has no such column"):
            events().select("bytes").map(short)

    def test_a_function_without_arguments(self) -> None:
        def nothing() -> int:
            return 1

        with pytest.raises(SqlError, match="takes no argument"):
            events().map(nothing)  # type: ignore[arg-type]

    def test_an_annotation_that_is_no_type(self) -> None:
        def odd(row: Row) -> complex:
            return 1j

        with pytest.raises(SqlError, match="which is no type of SQL"):
            events().map(odd)

    def test_flat_map_of_one_value(self) -> None:
        def one(row: Row) -> int:
            return 1

        with pytest.raises(SqlError, match="flat_map takes an Iterator"):
            events().flat_map(one)

    def test_what_cannot_be_called(self) -> None:
        with pytest.raises(SqlError, match="3 cannot be called"):
            events().map(3)  # type: ignore[arg-type]


def test_a_source_may_be_declared_by_a_class() -> None:
    stream = StreamBuilder("job").source("t", schema=Packed)
    assert isinstance(stream.node, Scan)
    assert types(stream) == {"host": "STRING", "size": "BIGINT"}
