"""A batch's rows against a dimension table: distinct keys ask once, and the pairs come back in the rows' order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.index_key import IndexKey, Matches, Numbers
from millstream.streams.dimension.searched import SearchedTable

__all__ = ["PAIRS_AT_ONCE", "every_pair", "found_pairs"]

PAIRS_AT_ONCE: Final = 1_000_000
"""Pairs of a row and a row of the table that are compared at once without an index."""

_DENSE: Final = 1 << 31


def found_pairs(table: SearchedTable, key: IndexKey, probes: Sequence[pa.Array]) -> Matches:
    """Each probe with each row of the table that it finds, ordered by probe, then row; NULL finds nothing."""
    asking, codes = _coded(probes)
    if not len(asking):
        return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    distinct = [probe.take(pa.array(asking[first])) for probe in probes]
    found = table.find(key, distinct)
    counts = np.bincount(found.probe, minlength=len(first))
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    mine = counts[inverse]
    ends = np.cumsum(mine)
    total = int(ends[-1])
    within = np.arange(total, dtype=np.int64) - np.repeat(ends - mine, mine)
    return Matches(np.repeat(asking, mine), found.row[np.repeat(starts[inverse], mine) + within])


def every_pair(probes: Numbers, rows: Numbers) -> Matches:
    """Each probe with each row."""
    return Matches(np.repeat(probes, len(rows)), np.tile(rows, len(probes)))


def _coded(probes: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
    """The places of the rows without NULL, and a number for each, equal for equal keys."""
    valid = np.ones(len(probes[0]), np.bool_)
    for probe in probes:
        if probe.null_count:
            valid &= pc.is_valid(probe).to_numpy(zero_copy_only=False)
    asking = np.flatnonzero(valid).astype(np.int64)
    codes: Numbers = np.zeros(len(asking), np.int64)
    size = 1
    for probe in probes:
        chosen = probe if len(asking) == len(probe) else probe.take(pa.array(asking))
        encoded = chosen.dictionary_encode()
        if size > _DENSE:
            distinct, codes = np.unique(codes, return_inverse=True)
            size = len(distinct)
        width = max(len(encoded.dictionary), 1)
        codes = codes * width + encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        size *= width
    return asking, codes
