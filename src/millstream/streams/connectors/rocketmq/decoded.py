"""Decoded slices kept for the other passes of a micro-batch: a job with windows reads each row several times.

The first pass over a slice leaves its record batches in a file; a later pass, in whatever worker, maps that file in
place of pulling and decoding again. It is only a shortcut: without the file, or without room for it, rows are read
from the topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from millstream.streams.spark.source.partition import Slice

__all__ = ["DecodedSlices"]

_SUFFIX = ".arrow"


class DecodedSlices:
    """A directory of decoded slices, for the schema of one source."""

    def __init__(self, directory: str, schema: pa.Schema) -> None:
        self._directory = Path(directory)
        self._schema = schema

    def find(self, part: Slice) -> Iterator[pa.RecordBatch] | None:
        """The batches of a slice that another pass has read; None if none has."""
        try:
            source = pa.memory_map(str(self._path(part)))
        except OSError:
            return None
        reader = pa.ipc.open_file(source)
        return (reader.get_batch(number) for number in range(reader.num_record_batches))

    def keep(self, part: Slice, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`batches` as they come; all of them are kept once the last was taken."""
        path = self._path(part)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            writer: pa.ipc.RecordBatchFileWriter | None = pa.ipc.new_file(str(unfinished), self._schema)
        except OSError:
            writer = None
        for batch in batches:
            writer = _write_batch(writer, batch)
            yield batch
        if writer is not None:
            try:
                writer.close()
                unfinished.replace(path)
            except OSError:
                unfinished.unlink(missing_ok=True)

    def _path(self, part: Slice) -> Path:
        return self._directory / f"{part.queue.replace('/', '_')}-{part.start}-{part.end}{_SUFFIX}"


def _write_batch(
    writer: pa.ipc.RecordBatchFileWriter | None, batch: pa.RecordBatch
) -> pa.ipc.RecordBatchFileWriter | None:
    if writer is None:
        return None
    try:
        writer.write_batch(batch)
    except OSError:
        return None
    return writer
