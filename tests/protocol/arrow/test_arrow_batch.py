"""Bulk bodies are read as an Arrow library reads them, and nothing that lies gets through."""

from __future__ import annotations

import random
import struct
import sys
import tracemalloc

import pyarrow as pa
import pytest
from arrow_bodies import CODECS, columns, record_batch, stream_of
from hypothesis import example, given
from hypothesis import strategies as st

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdCompressor
else:
    from backports.zstd import CompressionParameter, ZstdCompressor

from millstream.model.errors import MessageRefused, StoreError
from millstream.protocol.arrow.batch import (
    MAX_ROWS,
    MAX_UNCOMPRESSED_BYTES,
    MAX_WINDOW_LOG,
    BatchOutline,
    outline,
    plain_bytes,
    rows,
)
from millstream.protocol.arrow.flatbuffer import Misfit
from millstream.protocol.arrow.layout import Buffer

_NAMES = ("body", "key", "tag", "properties")


def _expected(values: dict[str, list[bytes] | list[str | None]]) -> list[tuple[object, ...]]:
    count = len(values["body"])
    return list(zip(*(values.get(name, [None] * count) for name in _NAMES), strict=True))


@given(columns(), st.sampled_from(CODECS), st.data())
@example({"body": [b""]}, "zstd", None)
def test_rows_are_those_that_the_library_wrote(values, codec, data):
    batch = record_batch(**{"bodies" if name == "body" else name: values[name] for name in values})
    if data is not None:
        batch = batch.select(data.draw(st.permutations(batch.schema.names)))
    body = stream_of(batch, codec)
    found = outline(body)
    assert (found.rows, found.columns) == (batch.num_rows, tuple(batch.schema.names))
    assert found.codec == {None: None, "zstd": "zstd", "lz4": "lz4_frame"}[codec]
    assert list(rows(body)) == _expected(values)
    start = data.draw(st.integers(0, 45)) if data is not None else 0
    stop = data.draw(st.integers(0, 45) | st.none()) if data is not None else 1
    assert list(rows(memoryview(body), start, stop)) == _expected(values)[start:stop]


@given(columns(), st.sampled_from(CODECS), st.integers(0, 20))
def test_a_slice_of_a_larger_batch_is_read_as_it_is(values, codec, start):
    batch = record_batch(**{"bodies" if name == "body" else name: values[name] for name in values})
    part = batch.slice(min(start, batch.num_rows - 1))
    assert list(rows(stream_of(part, codec))) == _expected(values)[min(start, batch.num_rows - 1) :]


def test_the_outline_adds_the_declared_lengths():
    batch = record_batch([b"abc"] * 1000, key=["k"] * 1000)
    plain, packed = outline(stream_of(batch)), outline(stream_of(batch, "zstd"))
    assert plain.uncompressed_bytes == packed.uncompressed_bytes == 4004 + 3000 + 4004 + 1000
    assert packed == BatchOutline(1000, 12008, ("body", "key"), "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_batch_is_read(codec):
    bodies = [b"x" * 100] * MAX_ROWS
    body = stream_of(record_batch(bodies, tag=["é"] * MAX_ROWS), codec)
    assert outline(body).rows == MAX_ROWS
    assert sum(len(row[0]) for row in rows(body)) == 100 * MAX_ROWS


def _refused(body: bytes) -> str:
    with pytest.raises(MessageRefused) as refusal:
        outline(body)
    assert refusal.value.name == "MESSAGE_MALFORMED"
    with pytest.raises(StoreError) as damage:
        rows(body)
    assert damage.value.name == "RECORD_DAMAGED"
    return refusal.value.message


def test_a_row_too_many_is_refused():
    assert f"{MAX_ROWS + 1} rows" in _refused(stream_of(record_batch([b""] * (MAX_ROWS + 1))))


def test_a_batch_without_rows_is_refused():
    assert "0 rows" in _refused(stream_of(record_batch([])))


def test_what_would_grow_beyond_the_limit_is_refused_unpacked():
    body = stream_of(record_batch([bytes(MAX_UNCOMPRESSED_BYTES)]), "zstd")
    assert len(body) < 10_000
    assert "once decompressed" in _refused(body)


def test_two_batches_are_refused():
    batch = record_batch([b"a"])
    one = stream_of(batch)
    schema_bytes = 8 + struct.unpack_from("<i", one, 4)[0]
    assert "follow the record batch" in _refused(one[:-8] + one[schema_bytes:])


def test_a_schema_alone_is_refused():
    batch = record_batch([b"a"])
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, batch.schema).close()
    assert "begins with -1 and 0" in _refused(sink.getvalue().to_pybytes())


def test_the_end_mark_may_be_missing():
    body = stream_of(record_batch([b"a", b"b"]), "zstd")
    assert [row[0] for row in rows(body[:-8])] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"key": pa.array(["a"])}, "columns key"),
        ({"body": pa.array(["a"])}, "not binary"),
        ({"body": pa.array([b"a"], pa.large_binary())}, "not binary"),
        ({"body": pa.array([b"a"], pa.binary(1))}, "not binary"),
        ({"body": pa.array([None], pa.binary())}, "1 nulls"),
        ({"body": pa.array([b"a"]), "key": pa.array([b"a"])}, "not utf8"),
        ({"body": pa.array([b"a"]), "key": pa.array(["a"], pa.large_utf8())}, "not utf8"),
        ({"body": pa.array([b"a"]), "key": pa.array(["a"]).dictionary_encode()}, "dictionary"),
        ({"body": pa.array([b"a"]), "keys": pa.array(["a"])}, "column 'keys'"),
        ({"body": pa.array([b"a"]), "number": pa.array([1])}, "column 'number'"),
    ],
)
def test_other_columns_are_refused(arrays, word):
    assert word in _refused(stream_of(pa.record_batch(arrays)))


def test_a_column_twice_is_refused():
    batch = pa.RecordBatch.from_arrays([pa.array([b"a"])] * 2, names=["body", "body"])
    assert "body, body" in _refused(stream_of(batch))


def test_metadata_of_the_schema_is_refused():
    batch = record_batch([b"a"]).replace_schema_metadata({"a": "b"})
    assert "metadata" in _refused(stream_of(batch))


def _damaged(body: bytes) -> str:
    outline(body)
    with pytest.raises(StoreError) as damage:
        rows(body)
    return damage.value.message


def _batch_body(stream: bytes) -> int:
    """Where the buffers of the record batch begin."""
    batch = 8 + struct.unpack_from("<i", stream, 4)[0]
    return batch + 8 + struct.unpack_from("<i", stream, batch + 4)[0]


@pytest.mark.parametrize(("offsets", "word"), [((0, 2, 1), "fall"), ((-1, 1, 2), "outside"), ((0, 1, 3), "outside")])
def test_offsets_that_lead_astray_are_damage(offsets, word):
    body = bytearray(stream_of(record_batch([b"a", b"b"])))
    struct.pack_into("<3i", body, _batch_body(body), *offsets)
    assert word in _damaged(bytes(body))


def test_text_that_is_no_utf8_is_damage():
    body = stream_of(record_batch([b"a"], tag=["abcdefgh"]))
    assert "UTF-8" in _damaged(body.replace(b"abcdefgh", b"abc\xff\xfeh  "))


def test_utf8_cut_between_two_values_is_damage():
    body = stream_of(record_batch([b"a", b"b"], tag=["xéy", "abcd"]))
    assert "UTF-8" in _damaged(body.replace(struct.pack("<3i", 0, 4, 8), struct.pack("<3i", 0, 2, 8)))


def test_a_wrong_count_of_nulls_is_damage():
    body = bytearray(stream_of(record_batch([b"a"] * 3, tag=["x", None, "y"])))
    place = body.index(bytes([0b101]), _batch_body(body))
    body[place] = 0b111
    assert "nulls" in _damaged(bytes(body))


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("change", [-8, -1, 1, 8])
def test_a_buffer_of_another_length_than_declared_is_damage(codec, change):
    data = bytes(1000)
    body = stream_of(record_batch([data]), codec)
    other = body.replace(struct.pack("<q", 1000), struct.pack("<q", 1000 + change))
    assert "declares" in _damaged(other)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_bytes_after_a_compressed_buffer_are_damage(codec):
    body = stream_of(record_batch([bytes(1000)]), codec)
    bomb = stream_of(record_batch([bytes(30_000_000)]), codec)
    tracemalloc.start()
    assert "declares" in _damaged(bomb.replace(struct.pack("<q", 30_000_000), struct.pack("<q", 1000)))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert len(list(rows(body))) == 1


def test_a_frame_that_asks_for_a_larger_window_than_any_batch_needs_is_damage():
    compressor = ZstdCompressor(options={CompressionParameter.window_log: MAX_WINDOW_LOG + 1})
    frame = compressor.compress(b"x" * 1000) + compressor.flush()
    place = Buffer(0, len(frame), 1000, packed=True)
    with pytest.raises(Misfit, match="cannot be decompressed"):
        plain_bytes(frame, place, "zstd")


_SAMPLES = [
    stream_of(record_batch([b"body", b"", b"more"] * 5, key=["a", None, "é"] * 5, tag=["t"] * 15), codec)
    for codec in CODECS
]


@pytest.mark.parametrize("sample", _SAMPLES, ids=map(str, CODECS))
def test_every_cut_is_refused(sample):
    for end in range(len(sample) - 8):
        _refused(sample[:end])


@pytest.mark.long
@pytest.mark.parametrize("sample", _SAMPLES, ids=map(str, CODECS))
def test_whatever_byte_changes_the_body_is_read_as_the_library_reads_it_or_refused(sample):
    choose = random.Random(20_261_121)
    read = 0
    for _ in range(12_000):
        changed = bytearray(sample)
        for _ in range(choose.choice((1, 1, 2, 4))):
            place = choose.randrange(len(changed))
            changed[place] = choose.choice((0, 1, 4, 0x7F, 0x80, 0xFF, choose.randrange(256)))
        read += _same_or_refused(bytes(changed))
    assert read > 100


@given(st.sampled_from(_SAMPLES), st.data())
def test_numbers_of_every_size_may_lie(sample, data):
    changed = bytearray(sample)
    layout = data.draw(st.sampled_from(["<i", "<q", "<h"]))
    size = struct.calcsize(layout)
    limit = 1 << (8 * size - 1)
    place = data.draw(st.integers(0, (len(changed) - size) // size)) * size
    struct.pack_into(layout, changed, place, data.draw(st.integers(-limit, limit - 1)))
    _same_or_refused(bytes(changed))


def _same_or_refused(body: bytes) -> bool:
    try:
        count = outline(body).rows
        found = list(rows(body))
    except (MessageRefused, StoreError):
        return False
    table = pa.ipc.open_stream(body).read_all()
    table.validate(full=True)
    assert count == len(found) == table.num_rows
    for number, name in enumerate(_NAMES):
        if name in table.schema.names:
            assert [row[number] for row in found] == table[name].to_pylist()
    return True
