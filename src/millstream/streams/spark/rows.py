"""A relation while it is translated: a data frame and columns over it that are not selected yet.

Projections and filters above one read only compose columns, so that several queries over one topic can share one
pass over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame

__all__ = ["Rows", "quoted_name"]


@dataclass(frozen=True)
class Rows:
    """Rows of `frame` for which `condition` holds (None: all), with `columns` by name.

    `event_times` are the columns that a window may stand on: the data frame's own event-time attributes.
    """

    frame: DataFrame
    columns: Mapping[str, Column]
    condition: Column | None = None
    event_times: Mapping[str, Column] = field(default_factory=dict)

    def where(self, condition: Column) -> Rows:
        """The rows for which `condition` holds as well."""
        both = condition if self.condition is None else self.condition & condition
        return Rows(self.frame, self.columns, both, self.event_times)


def quoted_name(name: str) -> str:
    """A column name as Spark reads it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
