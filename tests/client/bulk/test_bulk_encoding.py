"""Rows become bulk messages that a broker takes, or are refused with a reason."""

from __future__ import annotations

import random
import subprocess
import sys

import pyarrow as pa
import pytest

from millstream.client.bulk.encoding import MAX_ROW_BYTES, BulkEncoder, GatheredRows, encode_user_properties, row_bytes
from millstream.model.errors import MessageRefused
from millstream.model.message import MAX_BODY_BYTES
from millstream.protocol.arrow.batch import MAX_ROWS, outline, rows


def _bodies(batch: pa.RecordBatch, encoder: BulkEncoder | None = None) -> list[bytes]:
    return [row[0] for encoded in (encoder or BulkEncoder()).encode(batch) for row in rows(encoded.stream)]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "none"])
def test_every_codec_is_read_back(codec: str) -> None:
    batch = pa.record_batch(
        {"body": [b"a", b"b"], "key": ["k", None], "tag": ["t", "u"], "properties": [None, "a\x01b"]}
    )
    [encoded] = BulkEncoder(codec=codec).encode(batch)
    assert outline(encoded.stream).codec == {"zstd": "zstd", "lz4": "lz4_frame", "none": None}[codec]
    assert list(rows(encoded.stream)) == [(b"a", "k", "t", None), (b"b", None, "u", "a\x01b")]


def test_columns_of_related_types_and_metadata_are_brought_into_shape() -> None:
    batch = pa.record_batch(
        {
            "tag": pa.array(["x", "x"]).dictionary_encode(),
            "body": pa.array([b"a", b"b"], pa.large_binary()),
            "key": pa.array(["k", "l"], pa.large_utf8()),
        }
    ).replace_schema_metadata({"pandas": "{}"})
    [encoded] = BulkEncoder().encode(batch)
    assert list(rows(encoded.stream)) == [(b"a", "k", "x", None), (b"b", "l", "x", None)]


def test_text_bodies_are_taken_as_their_utf8() -> None:
    assert _bodies(pa.record_batch({"body": ["ü"]})) == ["ü".encode()]


def test_many_rows_are_cut_in_order() -> None:
    bodies = [b"%d" % number for number in range(25)]
    batch = pa.record_batch({"body": bodies})
    encoded = list(BulkEncoder(max_rows=10).encode(pa.Table.from_batches([batch.slice(0, 13), batch.slice(13)])))
    assert [part.rows for part in encoded] == [10, 3, 10, 2]
    assert [row[0] for part in encoded for row in rows(part.stream)] == bodies


def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    noise = random.Random(7)
    bodies = [noise.randbytes(1_500_000) for _ in range(5)]
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    parts = list(BulkEncoder().encode(batch))
    assert all(len(part.stream) <= MAX_BODY_BYTES for part in parts)
    assert [row[0] for part in parts for row in rows(part.stream)] == bodies


def test_rows_that_shrink_well_are_cut_where_they_would_unpack_beyond_the_limit() -> None:
    batch = pa.record_batch({"body": pa.array([bytes(7_000_000)] * 9, pa.binary())})
    assert [outline(part.stream).rows for part in BulkEncoder().encode(batch)] == [4, 2, 3]


def test_a_row_that_fits_no_bulk_message_is_refused() -> None:
    batch = pa.record_batch({"body": [random.Random(7).randbytes(MAX_BODY_BYTES)]})
    with pytest.raises(MessageRefused, match="does not fit a bulk message") as refusal:
        list(BulkEncoder().encode(batch))
    assert refusal.value.name == "BODY_TOO_LARGE"


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"key": ["a"]}),
        pa.record_batch({"body": [b"a"], "other": ["a"]}),
        pa.record_batch({"body": pa.array([None], pa.binary())}),
        pa.record_batch({"body": [b"a"], "key": [[1]]}),
        pa.record_batch({"body": [b"a"], "key": [b"\xff"]}),
        pa.RecordBatch.from_arrays([pa.array([b"a"])] * 2, names=["body", "body"]),
    ],
    ids=["no body", "other column", "null body", "list key", "key no text", "body twice"],
)
def test_rows_of_another_shape_are_refused(batch: pa.RecordBatch) -> None:
    with pytest.raises(MessageRefused) as refusal:
        list(BulkEncoder().encode(batch))
    assert refusal.value.name == "MESSAGE_MALFORMED"


@pytest.mark.parametrize("settings", [{"codec": "gzip"}, {"max_rows": 0}, {"max_rows": MAX_ROWS + 1}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"possible|none of"):
        BulkEncoder(**settings)  # type: ignore[arg-type]


def test_gathered_rows_leave_out_columns_that_nobody_used() -> None:
    gathered = GatheredRows("t")
    assert [gathered.add(b"a", None, "x", None, 18), gathered.add(b"b", None, None, None, 17)] == [0, 1]
    assert gathered.size_bytes == 35
    assert gathered.record_batch().to_pydict() == {"body": [b"a", b"b"], "tag": ["x", None]}


def test_a_message_that_would_spoil_its_neighbours_is_refused_alone() -> None:
    noise = random.Random(7).randbytes(MAX_ROW_BYTES - 16)
    assert row_bytes(noise, None, None, None) == MAX_ROW_BYTES
    [largest] = BulkEncoder().encode(pa.record_batch({"body": [noise]}))
    assert len(largest.stream) <= MAX_BODY_BYTES
    with pytest.raises(MessageRefused) as refusal:
        row_bytes(noise, "k", None, None)
    assert refusal.value.name == "BODY_TOO_LARGE"
    with pytest.raises(TypeError, match="not str"):
        row_bytes("text", None, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "tag", "properties"),
    [("a\x01", None, None), (None, "\x02", None), (None, None, {"KEYS": "x"}), (None, None, {"a": "\ud800"})],
)
def test_what_cannot_be_stored_as_properties_is_refused(key, tag, properties) -> None:
    with pytest.raises(MessageRefused) as refusal:
        encode_user_properties(key, tag, properties)
    assert refusal.value.name == "ILLEGAL_PROPERTY"


def test_text_that_is_none_is_named() -> None:
    with pytest.raises(TypeError, match="not int"):
        encode_user_properties(None, None, {"a": 1})  # type: ignore[dict-item]


@pytest.mark.process
def test_without_pyarrow_the_lane_names_the_extra() -> None:
    script = "import sys; sys.modules['pyarrow'] = None; import millstream.client.bulk.producer"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert 'pip install "millstream[bulk]". [MS-1007]' in ended.stderr
    optional = script.replace("import millstream", "\ntry: import millstream") + "\nexcept ImportError: pass"
    subprocess.run([sys.executable, "-c", optional], check=True)
