"""How a plan's node becomes an operator: which columns it reads of which inputs, by what its rows are spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import Operator, Row
from millstream.streams.plan.expressions import Column, Expression
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.ordering import OrderKey
from millstream.streams.plan.types import Schema

__all__ = ["Wire", "Wiring", "all_columns", "order_places", "places_of"]


@dataclass(frozen=True, slots=True)
class Wire:
    """One input: the columns that the operator gets; rows with equal `keys` (places) meet in one key group."""

    node: Node
    columns: tuple[Expression, ...]
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """An operator and its inputs. It says rows of the node's schema; of those only the ones with `condition` go on.

    `lives_ms` is how long values of some of its tables live, by the table's name, in place of the job's TTL.
    `of_nothing` makes the row that the result of a batch job has even if its input has no rows.
    """

    make: Callable[[], Operator]
    inputs: tuple[Wire, ...]
    condition: Expression | None = None
    lives_ms: tuple[tuple[str, int], ...] = ()
    of_nothing: Callable[[], Row] | None = None


def all_columns(schema: Schema) -> tuple[Expression, ...]:
    """Every column of a schema."""
    return tuple(Column(field.name, field.type) for field in schema.fields)


def places_of(schema: Schema, names: tuple[str, ...]) -> tuple[int, ...]:
    """Where the columns of those names stand."""
    return tuple(schema.names.index(name) for name in names)


def order_places(schema: Schema, order: tuple[OrderKey, ...]) -> tuple[OrderColumn, ...]:
    """The columns of an ORDER BY by their places. One over processing time says nothing: rows come in its order."""
    fields = {field.name: field for field in schema.fields}
    return tuple(
        OrderColumn(schema.names.index(key.column), key.ascending, key.has_nulls_first)
        for key in order
        if not (fields[key.column].proctime and key.ascending)
    )
