"""Rows grouped by key: key fields once, the rest per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["Merge", "decode_grouped", "encode_grouped", "groups_of", "merge_rows"]

_ROWS: Final = "__rows"
"""How many rows a key has."""

_PLACES: Final = b"places"
"""Where each column stood: in the metadata of the keys."""

_LENGTH_BYTES: Final = 4


class Merge(StrEnum):
    """How values of rows that become one are put together."""

    COUNT = "count"
    """How many are not NULL."""
    SUM = "sum"
    MIN = "min"
    MAX = "max"


Numbers = np.ndarray[Any, np.dtype[np.int64]]


def groups_of(columns: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
    """The first row of each different combination of values (NULL is one), and the combination's number by row."""
    codes = np.zeros(len(columns[0]), np.int64)
    firsts = np.zeros(min(1, len(columns[0])), np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
        # Numbers without gaps, so that the next product stays small.
        _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    return firsts, codes


def merge_rows(
    rows: pa.RecordBatch, keys: Sequence[str], merges: Mapping[str, Merge], told: Sequence[str] = ()
) -> pa.RecordBatch:
    """One row for each combination of `keys`: the columns of `merges` put together, those of `told` as they are.

    A column in none of them is not in the result. The types stay.
    """
    firsts, groups = groups_of([rows.column(name) for name in keys])
    kept = [name for name in rows.schema.names if name in keys or name in told or name in merges]
    values = pa.table({"group": groups, **{name: rows.column(name) for name in merges}})
    sums = values.group_by("group", use_threads=False).aggregate([(name, how.value) for name, how in merges.items()])
    sums = sums.sort_by("group").combine_chunks()
    arrays = []
    for name in kept:
        if name in merges:
            found = sums.column(f"{name}_{merges[name].value}").combine_chunks()
            arrays.append(found.cast(rows.schema.field(name).type))
        else:
            arrays.append(rows.column(name).take(pa.array(firsts)))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([rows.schema.field(name) for name in kept]))


def encode_grouped(rows: pa.RecordBatch, keys: Sequence[str], told: Sequence[str] = ()) -> bytes:
    """The rows as bytes, key by key: two Arrow streams, the keys with how many rows each has, and the other columns."""
    names = rows.schema.names
    of_keys = [name for name in names if name in keys or name in told]
    if not of_keys or not rows.num_rows:
        firsts, groups = np.zeros(min(1, rows.num_rows), np.int64), np.zeros(rows.num_rows, np.int64)
    else:
        firsts, groups = groups_of([rows.column(name) for name in keys])
    order = pa.array(np.argsort(groups, kind="stable"))
    counts = pa.array(np.bincount(groups, minlength=len(firsts)), pa.int64())
    places = {_PLACES: "\n".join(names).encode()}
    schema = pa.schema([*(rows.schema.field(name) for name in of_keys), pa.field(_ROWS, pa.int64())], places)
    each = rows.select(of_keys).take(pa.array(firsts))
    first = _stream(pa.RecordBatch.from_arrays([*each.columns, counts], schema=schema))
    rest = rows.select([name for name in names if name not in of_keys])
    second = _stream(rest.take(order)) if rest.num_columns else b""
    return len(first).to_bytes(_LENGTH_BYTES) + first + second


def decode_grouped(text: bytes) -> pa.RecordBatch:
    """The rows of `encode_grouped`, by key and in their order. Raises pa.ArrowException, ValueError, KeyError."""
    end = _LENGTH_BYTES + int.from_bytes(text[:_LENGTH_BYTES])
    keys = _batch(text[_LENGTH_BYTES:end])
    names = keys.schema.metadata[_PLACES].decode().split("\n")
    counts = keys.column(_ROWS).to_numpy()
    repeated = keys.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    rest = _batch(text[end:]) if len(text) > end else None
    parts = [repeated if name in repeated.schema.names or rest is None else rest for name in names]
    fields = [part.schema.field(name) for part, name in zip(parts, names, strict=True)]
    arrays = [part.column(name) for part, name in zip(parts, names, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _batch(text: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(text) as stream:
        batch = stream.read_next_batch()
    batch.validate(full=True)
    return batch
