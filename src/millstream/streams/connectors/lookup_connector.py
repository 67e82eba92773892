"""What a connector's code does for lookup joins: rows by their keys, or all rows for a dimension table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.streams.dimension.versions import Loaded
    from millstream.streams.plan.expressions import Call
    from millstream.streams.spark.lookups.lookup_table import LookupSpec, LookupTable

__all__ = ["LookupConnector"]


class LookupConnector(Protocol):
    """Finds the rows of one table, in the driver and in workers; it is opened without a look at the data."""

    @property
    def watches(self) -> bool:
        """Whether `stamp` shows that a version is too old; else its age or the time of the day does."""
        ...

    def table(self) -> LookupTable:
        """What each worker asks, not read yet. Raises JobError JOB_FAILED where only a dimension table can be asked."""
        ...

    def loads_whole(self) -> bool:
        """Whether the table becomes a dimension table where neither an option nor a join says so."""
        ...

    def stamp(self) -> str:
        """What shows that the data is other data; blank where nothing does."""
        ...

    def load(self, fill: Callable[[], Loaded], directory: Path) -> Loaded:
        """What `fill` gives, which reads `batches` into the empty `directory`; again where an attempt failed.

        Raises JobError where the data cannot be read.
        """
        ...

    def batches(self, spec: LookupSpec, ends: dict[str, int], filters: Sequence[Call]) -> Iterator[pa.RecordBatch]:
        """All rows in the columns of `spec`, which may have more than the table that was opened; of a topic those up to
        `ends`, by queue. Rows for which one of `filters` fails may be left out.
        """
        ...
