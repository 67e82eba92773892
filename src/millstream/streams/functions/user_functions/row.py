"""Rows as Python functions see them."""

from __future__ import annotations

from typing import Any

__all__ = ["Row"]


class Row(dict[str, Any]):
    """One row: `row["host"]` and `row.host` are its columns; a column that is called like a method has the first form.

    >>> row = Row(host="a", items=3)
    >>> row.host, row["items"]
    ('a', 3)
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"The row has no column {name!r}; it has {known}.") from None
