"""The node in which Python functions of a user see rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import Field, Schema

__all__ = ["OnError", "PythonCode", "PythonKind", "PythonRows"]


class PythonKind(Enum):
    """What a function gives for a row: another row, several, whether it stays, nothing; or columns for columns."""

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    FOREACH = "foreach"
    MAP_BATCHES = "map_batches"


class OnError(Enum):
    """What becomes of a row for which a function raises: it goes to a topic, is only counted, or ends the job."""

    DEAD_LETTER = "dead-letter"
    SKIP = "skip"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class PythonCode:
    """A function, and what a message calls it. Two plans are equal whatever the function does.

    `row_type` is the class of the rows that it is given; None for the SDK's own. `root` is a directory to import from.
    """

    name: str
    function: Callable[..., Any] = field(compare=False, repr=False)
    row_type: type | None = field(default=None, compare=False, repr=False)
    root: str = field(default="", compare=False, repr=False)
    on_error: OnError = field(default=OnError.FAIL, compare=False)


@dataclass(frozen=True, slots=True)
class PythonRows(Node):
    """What a function makes of each row: the columns `made`, then those of the input that are `kept` beside them.

    The function sees the columns `reads` of the input.
    """

    input: Node
    kind: PythonKind
    code: PythonCode
    reads: tuple[str, ...]
    made: tuple[Field, ...]
    kept: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        known = {of.name: of for of in self.input.schema.fields}
        return Schema((*self.made, *(known[name] for name in self.kept)))
