"""The part of a topic that one task reads."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import InputPartition

from millstream.streams.spark.source.cold_pieces import ColdPiece
from millstream.streams.spark.source.position import Slice

__all__ = ["TopicPartition"]


class TopicPartition(InputPartition):
    """What one task reads: slices in order, by the bulk lane or not, then a tick where `tick_ms` has its event time.

    `rules` is the version of the rules that judge it, 0 where none do. `cold` are the pieces of slices that are read
    from an object store.
    """

    def __init__(
        self,
        slices: tuple[Slice, ...],
        tick_ms: int | None = None,
        *,
        bulk: bool = False,
        rules: int = 0,
        cold: Mapping[Slice, tuple[ColdPiece, ...]] | None = None,
    ) -> None:
        super().__init__(None)
        self.slices = slices
        self.tick_ms = tick_ms
        self.bulk = bulk
        self.rules = rules
        self.cold = cold or {}
