"""The table of a lookup join, opened by the code that its connector names."""

from __future__ import annotations

from collections.abc import Callable

from millstream.streams.connectors.opening import code_of
from millstream.streams.connectors.protocols import LookupConnector
from millstream.streams.connectors.registry import connector_of
from millstream.streams.errors import JobError
from millstream.streams.spark.lookups.lookup_table import LookupSpec, LookupTable

__all__ = ["open_lookup", "open_table"]


def open_lookup(spec: LookupSpec) -> LookupConnector:
    """What finds the rows of the table. Raises JobError JOB_FAILED for one that cannot be looked up."""
    name = spec.option("connector")
    place = connector_of(name).lookup
    if not place:
        words = f"The table {spec.name} cannot be looked up: its connector is {name!r}."
        raise JobError("JOB_FAILED", words)
    make: Callable[[LookupSpec], LookupConnector] = code_of(place)
    return make(spec)


def open_table(spec: LookupSpec) -> LookupTable:
    """What each worker asks, not read yet. Raises JobError JOB_FAILED for a table that cannot be asked."""
    return open_lookup(spec).table()
