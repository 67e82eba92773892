"""Bulk bodies as an Arrow library writes them, for tests."""

from __future__ import annotations

import io

import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["CODECS", "TEXT", "columns", "record_batch", "stream_of"]

CODECS = (None, "zstd", "lz4")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def stream_of(batch: pa.RecordBatch, codec: str | None = None) -> bytes:
    """The IPC stream of one batch."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def record_batch(bodies: list[bytes], **texts: list[str | None]) -> pa.RecordBatch:
    """A batch of the lane's shape."""
    arrays = {"body": pa.array(bodies, pa.binary())}
    arrays.update({name: pa.array(values, pa.utf8()) for name, values in texts.items()})
    return pa.record_batch(arrays)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, list[bytes] | list[str | None]]:
    """Values of the columns, the optional ones in any selection."""
    count = draw(st.integers(1, 40))
    chosen: dict[str, list[bytes] | list[str | None]] = {
        "body": draw(st.lists(st.binary(max_size=30), min_size=count, max_size=count))
    }
    for name in draw(st.sets(st.sampled_from(["key", "tag", "properties"]))):
        value = draw(st.sampled_from([TEXT, st.none() | TEXT, st.none()]))
        chosen[name] = draw(st.lists(value, min_size=count, max_size=count))
    return chosen
