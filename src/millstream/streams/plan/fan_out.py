"""A fan-out node: many branches over the same rows that differ in conditions and constants."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import DataType, Field, Schema

__all__ = ["Constants", "FanOut"]


@dataclass(frozen=True, slots=True)
class Constants:
    """A column that has a constant for each branch, by the branch's number."""

    name: str
    type: DataType
    values: tuple[str | int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class FanOut(Node):
    """Each row once for every branch that wants it, with the constants of that branch.

    `branches` is an ARRAY<INT> over the input's columns: the numbers of those branches, from 0.
    """

    input: Node
    branches: Expression
    constants: tuple[Constants, ...]

    @property
    def schema(self) -> Schema:
        added = (Field(constant.name, constant.type) for constant in self.constants)
        return Schema((*self.input.schema.fields, *added))
