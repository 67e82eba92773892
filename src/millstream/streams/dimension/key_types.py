"""Checks that columns can be keys, and converts probes to comparable values."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import pyarrow as pa

from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.key_values import KeyFamily, family_of
from millstream.streams.dimension.range_index import is_ordered
from millstream.streams.errors import DimensionError

__all__ = ["check_key", "column_type", "comparable", "families_of"]


def column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """The type of a column. Raises DIMENSION_COLUMN with the nearest name."""
    place = schema.get_field_index(name)
    if place >= 0:
        return schema.field(place).type
    near = get_close_matches(name, schema.names, n=1, cutoff=0.5)
    words = f"The dimension table has no column {name!r}" + (f"; did you mean {near[0]!r}?" if near else ".")
    raise DimensionError("DIMENSION_COLUMN", words)


def families_of(key: IndexKey, schema: pa.Schema) -> list[KeyFamily]:
    """What the columns of a key are compared with. Raises DIMENSION_KEY where one cannot be compared."""
    found = []
    for name in key.columns:
        data_type = column_type(schema, name)
        family = family_of(data_type)
        if family is None:
            raise DimensionError("DIMENSION_KEY", f"The column {name!r} of type {data_type} cannot be a key.")
        found.append(family)
    return found


def check_key(key: IndexKey, schema: pa.Schema) -> None:
    """Raises DIMENSION_COLUMN or DIMENSION_KEY where there can be no such index."""
    counts = {IndexKind.RANGE: 2, IndexKind.NETWORK: 1, IndexKind.PREFIX: 1}
    if key.kind is IndexKind.EQUAL:
        fits = bool(key.columns) and list(key.columns) == sorted(set(key.columns))
    else:
        fits = len(key.columns) == counts[key.kind]
    if not fits:
        words = f"An index of the kind {key.kind.name} cannot have the columns ({', '.join(key.columns)})."
        raise DimensionError("DIMENSION_KEY", words)
    families = families_of(key, schema)
    if key.kind in (IndexKind.NETWORK, IndexKind.PREFIX) and families[0] is not KeyFamily.TEXT:
        words = f"The column {key.columns[0]!r} of type {column_type(schema, key.columns[0])} is no STRING"
        raise DimensionError("DIMENSION_KEY", f"{words}, which a {key.kind.name} index needs.")
    if key.kind is IndexKind.RANGE:
        first, last = (column_type(schema, name) for name in key.columns)
        plain = pa.types.is_integer(first) and pa.types.is_integer(last)
        if not is_ordered(first) or not (first == last or plain):
            words = f"The columns {key.columns[0]!r} of type {first} and {key.columns[1]!r} of type {last}"
            raise DimensionError("DIMENSION_KEY", f"{words} cannot be the start and the end of a RANGE.")


def comparable(key: IndexKey, schema: pa.Schema, probes: Sequence[pa.Array]) -> list[pa.Array]:
    """The probes in types that are compared with the columns of the key. Raises DIMENSION_KEY where one has no such."""
    columns = key.columns[:1] if key.kind is IndexKind.RANGE else key.columns
    if len(probes) != len(columns):
        words = f"The index {key} is asked with {len(probes)} columns instead of {len(columns)}."
        raise DimensionError("DIMENSION_KEY", words)
    return [_comparable(key, name, column_type(schema, name), one) for name, one in zip(columns, probes, strict=True)]


def _comparable(key: IndexKey, name: str, wanted: pa.DataType, probe: pa.Array) -> pa.Array:
    if isinstance(probe, pa.ChunkedArray):
        probe = probe.combine_chunks()
    if pa.types.is_dictionary(probe.type):
        probe = probe.dictionary_decode()
    if pa.types.is_null(probe.type):
        return probe.cast(wanted)
    mine, asked = family_of(wanted), family_of(probe.type)
    if mine is KeyFamily.FLOAT and asked is KeyFamily.NUMBER:
        return probe.cast(pa.float64())
    if mine is not asked or mine is None:
        has = "a type that cannot be compared" if asked is None else asked.value
        words = f"The column {name!r} is {mine.value if mine else wanted}, what it is compared with is {has}"
        raise DimensionError("DIMENSION_KEY", f"{words} ({probe.type}).", remedy="Cast it to the column's type.")
    if key.kind is not IndexKind.RANGE or probe.type == wanted or mine is KeyFamily.FLOAT:
        return probe
    if pa.types.is_integer(wanted) and pa.types.is_integer(probe.type):
        return probe
    try:
        return probe.cast(wanted)
    except pa.ArrowInvalid:
        words = f"The column {name!r} of type {wanted} is compared with values of type {probe.type} beyond its digits."
        raise DimensionError("DIMENSION_KEY", words, remedy="Cast them to the column's type.") from None
