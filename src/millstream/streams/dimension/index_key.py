"""The keys by which rows of a dimension table are found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["IndexKey", "IndexKind", "Matches", "Numbers"]

Numbers = npt.NDArray[np.int64]


class IndexKind(Enum):
    """How an index compares: whole keys, a value with ranges, an address with networks, a text with prefixes."""

    EQUAL = "equal"
    RANGE = "range"
    NETWORK = "network"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True)
class IndexKey:
    """One index of a table, named by what it finds rows by.

    `columns` are sorted names for EQUAL (`IndexKey.equal` sorts), the columns of the start and the end for RANGE, one
    STRING column for NETWORK (`10.0.0.0/8`, an address stands for itself) and PREFIX. A RANGE holds its start, and its
    end where `end_included`.
    """

    kind: IndexKind
    columns: tuple[str, ...]
    end_included: bool = True

    @classmethod
    def equal(cls, *columns: str) -> IndexKey:
        """The index by these columns, in whatever order they are named."""
        return cls(IndexKind.EQUAL, tuple(sorted(columns)))

    def encode(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {"kind": self.kind.value, "columns": list(self.columns), "end_included": self.end_included}

    @classmethod
    def decode(cls, said: dict[str, Any]) -> IndexKey:
        """The key of which a manifest says that."""
        return cls(IndexKind(said["kind"]), tuple(said["columns"]), bool(said["end_included"]))

    def __str__(self) -> str:
        return f"{self.kind.value} ({', '.join(self.columns)})"


class Matches(NamedTuple):
    """Pairs of a probe's place and a row's number, ordered by probe, then row. The same probe may stand there often."""

    probe: Numbers
    row: Numbers
