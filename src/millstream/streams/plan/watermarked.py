"""Rows with the watermark that they met: CURRENT_WATERMARK."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import DataType, Field, Schema

__all__ = ["Watermarked"]


@dataclass(frozen=True, slots=True)
class Watermarked(Node):
    """Each row with the watermark that it met as the column `name`: NULL before any.

    Event time moves between micro-batches, so that all rows of one meet the same.
    """

    input: Node
    name: str
    type: DataType

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, Field(self.name, self.type)))
