"""Packed hits: rows come out as they went in, and a record that is broken says how."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.errors import RuleError
from millstream.streams.rules.packed.record import BatchEnd, RowsHead, head_of, pack, pack_end, unpack
from millstream.streams.rules.packed.rows import Merge, merge_rows

HEAD = RowsHead("job", 7, "b/0", "rows", 10, 19, 0, 3, newest_us=5, watermark_us=4)
SCHEMA = pa.schema(
    [
        ("measured", pa.string()),
        ("rule", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("group_key", pa.string()),
        ("hits", pa.int64()),
    ]
)
TEXTS = st.none() | st.sampled_from(["", "a", "b", "ä\0", "a long one that stands again and again"])


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Rows in which the tags are those of the rule."""
    rules = {name: draw(st.none() | st.lists(TEXTS, max_size=2)) for name in ("one", "two", None)}
    rows = draw(
        st.lists(
            st.tuples(TEXTS, st.sampled_from(list(rules)), st.none() | st.integers(0, 10**15), TEXTS,
                      st.none() | st.integers(-5, 5)),
            max_size=40,
        )
    )  # fmt: skip
    columns = (
        [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows],
        [rules[row[1]] for row in rows], [row[3] for row in rows], [row[4] for row in rows],
    )  # fmt: skip
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def by_key(rows: pa.RecordBatch) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.to_pylist():
        found[row["rule"], row["group_key"]].append(row)
    return found


@given(batches())
def test_each_key_has_the_rows_that_it_had_in_their_order(rows: pa.RecordBatch) -> None:
    head, found = unpack(pack(HEAD, rows, ("rule", "group_key"), ("tags",)))
    assert found is not None
    assert found.schema.equals(SCHEMA)
    assert by_key(found) == by_key(rows)
    assert isinstance(head, RowsHead)
    assert (head.queue, head.first, head.last, head.newest_us, head.watermark_us) == ("b/0", 10, 19, 5, 4)


@given(batches())
def test_rows_without_a_key_or_with_nothing_but_keys_come_out_too(rows: pa.RecordBatch) -> None:
    _, found = unpack(pack(HEAD, rows, ()))
    assert found is not None
    assert found.to_pylist() == rows.to_pylist()
    only = rows.select(["rule", "group_key"])
    _, found = unpack(pack(HEAD, only, ("rule", "group_key")))
    assert found is not None
    assert sorted(found.to_pylist(), key=repr) == sorted(only.to_pylist(), key=repr)


@given(batches())
def test_merged_rows_have_what_python_adds_up(rows: pa.RecordBatch) -> None:
    merges = {"hits": Merge.SUM, "time": Merge.MAX, "measured": Merge.MIN}
    found = merge_rows(rows, ("rule", "group_key"), merges, ("tags",)).to_pylist()
    assert {(row["rule"], row["group_key"]) for row in found} == set(by_key(rows))
    assert len(found) == len(by_key(rows))
    for row in found:
        plain = by_key(rows)[row["rule"], row["group_key"]]
        hits, times, texts = (
            [one[name] for one in plain if one[name] is not None] for name in ("hits", "time", "measured")
        )
        assert row["hits"] == (sum(hits) if hits else None)
        assert row["time"] == max(times, default=None)
        assert row["measured"] == min(texts, default=None)
        assert row["tags"] == plain[0]["tags"]


@given(batches())
def test_counts_are_of_values_that_are_there(rows: pa.RecordBatch) -> None:
    found = merge_rows(rows, ("rule",), {"hits": Merge.COUNT})
    wanted: dict[Any, int] = defaultdict(int)
    for row in rows.to_pylist():
        wanted[row["rule"]] += row["hits"] is not None
    assert {row["rule"]: row["hits"] for row in found.to_pylist()} == wanted


def test_the_end_of_a_micro_batch_comes_out_as_it_went_in() -> None:
    end = BatchEnd("job", 3, "b/1", ("b/0", "b/1"), {"a/0": 17}, 12)
    assert unpack(pack_end(end)) == (end, None)
    assert head_of(pack_end(end)) == end


ROWS = pa.RecordBatch.from_pylist([{"rule": "one", "n": 1}] * 5)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_record_are_refused_in_words(text: bytes) -> None:
    with pytest.raises(RuleError, match="A record of hits cannot be read: ") as refused:
        unpack(text)
    assert refused.value.name == "RULE_HITS_BROKEN"


@given(st.data())
def test_a_record_with_one_byte_changed_or_its_end_cut_off_is_refused(data: st.DataObject) -> None:
    record = bytearray(pack(HEAD, ROWS, ("rule",)))
    place = data.draw(st.integers(0, len(record) - 1))
    record[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RuleError):
        unpack(bytes(record))
    with pytest.raises(RuleError):
        unpack(pack(HEAD, ROWS, ("rule",))[:place])


def test_a_record_of_a_newer_release_and_one_of_somebody_else_say_so() -> None:
    record = bytearray(pack(HEAD, ROWS, ("rule",)))
    record[4] = 2
    with pytest.raises(RuleError, match="its version is 2, and this release reads 1 to 1"):
        unpack(bytes(record))
    with pytest.raises(RuleError, match="something else writes to the topic"):
        head_of(b'{"some": "message of another one"}')
    with pytest.raises(RuleError, match="it has 3 bytes, and 13 are the least"):
        head_of(b"abc")
