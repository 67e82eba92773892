"""What topics may declare, and which later declarations their files fit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.topic import ColumnAttributes, MessageType, TopicConfig, check_attributes, copy_attributes
from millstream.server.columns.column_changes import check_change, read_fields
from millstream.server.columns.declaration import parse_columns


@pytest.mark.parametrize(
    ("columns", "body_format", "why"),
    [
        ("", "json", "a column's name"),
        ("id", "json", "type"),
        ("id BIGINT name STRING", "json", "a comma or the end"),
        ("id BIGINT) WITH (", "json", "a comma or the end"),
        ("id BIGINT, Id STRING", "json", "two columns are called 'id'"),
        ("a ROW<x INT, X INT>", "json", "two fields of a are called 'x'"),
        ("a MAP<STRING, ROW<y ARRAY<ROW<x INT, X INT>>>>", "json", "two fields of a[].y[] are called 'x'"),
        ("_Queue_Id INT", "json", "'_queue_id' is a column of every copy"),
        ("span INTERVAL DAY", "json", "which tables do not have"),
        ("a ARRAY<VARIANT>", "json", "which tables do not have"),
        ("a STRING, b STRING", "raw", "a raw body is one column, not 2"),
        ("`a b` INT", "avro", "a b"),
    ],
)
def test_columns_that_cannot_be_are_refused(columns: str, body_format: str, why: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        parse_columns(columns, body_format).decoder()
    assert refused.value.name == "COLUMNS_REFUSED"
    assert why in refused.value.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a INT", "a INT, b STRING"),
        ("a INT, b STRING", "b STRING, c INT, a INT"),
        ("a ROW<x INT>", "a ROW<x INT, y ARRAY<INT>>"),
        ("a ARRAY<ROW<x INT>>", "a ARRAY<ROW<x INT, y INT>>"),
        ("a INT NOT NULL", "a INT"),
        ("a VARCHAR(5)", "a STRING"),
        ("a DECIMAL", "a DECIMAL(10, 0)"),
    ],
)
def test_what_is_added_fits(old: str, new: str) -> None:
    check_change(read_fields(old), read_fields(new))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("a INT, b STRING", "a INT", "the column b is left out"),
        ("a INT", "a BIGINT", "the column a was INT and is BIGINT now"),
        ("a DECIMAL(10, 2)", "a DECIMAL(10, 3)", "the column a was DECIMAL(10, 2)"),
        ("a ROW<x INT, y INT>", "a ROW<x INT>", "the field a.y is left out"),
        ("a MAP<STRING, INT>", "a MAP<STRING, STRING>", "the column a[] was INT"),
        ("a ARRAY<ROW<x INT>>", "a ARRAY<ROW<x STRING>>", "the column a[].x was INT"),
    ],
)
def test_what_is_left_out_or_of_another_type_does_not_fit(old: str, new: str, why: str) -> None:
    with pytest.raises(MillstreamError, match=r".") as refused:
        check_change(read_fields(old), read_fields(new))
    assert why in refused.value.message


@pytest.mark.process
def test_a_change_is_judged_where_no_extra_is_installed() -> None:
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pyarrow', 'pyspark', 'pyiceberg')))\n"
        "from millstream.server.columns.column_changes import check_change, read_fields\n"
        "check_change(read_fields('a INT'), read_fields('a BIGINT'))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "was INT and is BIGINT now" in ran.stderr


@pytest.mark.parametrize(
    ("old", "new", "remedy"),
    [
        ("a INT", "a BIGINT", "Declare a as INT again, and a column of another name as BIGINT"),
        ("a ROW<x INT, y INT>", "a ROW<x INT>", "Declare a.y as well"),
    ],
)
def test_a_refused_change_says_what_to_declare_instead(old: str, new: str, remedy: str) -> None:
    with pytest.raises(MillstreamError, match=r".") as refused:
        check_change(read_fields(old), read_fields(new))
    assert remedy in str(refused.value)


def test_columns_come_through_the_attributes_of_a_topic_without_commas_and_spaces() -> None:
    declared = ColumnAttributes("id BIGINT, `größe` DECIMAL(10, 2), m MAP<STRING, INT>", "csv")
    attributes = copy_attributes(declared)
    assert not set(",= +-") & set(attributes["cold.schema"].replace("+", ""))
    topic = TopicConfig("t", attributes=attributes)
    check_attributes(topic)
    assert topic.column_copy == declared
    assert TopicConfig("t").column_copy is None


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        (TopicConfig("t", attributes={"cold.format": "orc"}), "cold.format='orc'"),
        (TopicConfig("t", attributes={"cold.format": "parquet"}), "declares no columns"),
        (
            TopicConfig("t", attributes={"cold.format": "parquet", "cold.schema": "id BIGINT"}),
            "cold.schema='id BIGINT'",
        ),
        (TopicConfig("%t", attributes={"cold.format": "parquet", "cold.schema": "id+INT"}), "would be a table"),
        (
            TopicConfig("t", MessageType.LITE, attributes={"cold.format": "parquet", "cold.schema": "id+INT"}),
            "of type LITE",
        ),
    ],
)
def test_topics_that_cannot_have_a_copy_are_refused(topic: TopicConfig, why: str) -> None:
    with pytest.raises(NameRefused) as refused:
        check_attributes(topic)
    assert refused.value.name == "ILLEGAL_TOPIC"
    assert why in refused.value.message
