"""Record batches of rows with any number of columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["batch_of"]


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """`count` rows of the columns; where there is none the batch has a nameless one, else it would have no rows."""
    if not arrays:
        return pa.RecordBatch.from_pydict({"": pa.nulls(count)})
    return pa.RecordBatch.from_arrays(list(arrays), schema=schema)
