"""JSON. A path is `$`, `.member`, `['member']`, `[0]`, `[*]` and the like, in mode lax (as it is) or strict."""

from __future__ import annotations

from millstream.streams.functions.spec import FunctionSpec
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType

__all__ = ["DOCUMENTS", "JSON_VALUE_TYPES"]

JSON_VALUE_TYPES: dict[str, DataType] = {
    "STRING": STRING, "BOOLEAN": BOOLEAN, "INT": INT, "BIGINT": BIGINT, "DOUBLE": DOUBLE,
}  # fmt: skip
"""What JSON_VALUE can return, by the word that stands for it in a call."""

DOCUMENTS: tuple[FunctionSpec, ...] = (
    FunctionSpec("JSON_VALUE", "document STRING, path STRING", STRING, "The scalar at a path; NULL where there is none.", "JSON_VALUE('{\"a\": 1}', '$.a')", "'1'"),
)  # fmt: skip
"""Their rows of the registry."""
