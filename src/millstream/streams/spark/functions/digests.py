"""Digests, base64 and Java's string hash."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.expressions import Call
from millstream.streams.spark.functions.arrow import hash_code
from millstream.streams.spark.functions.builder import Builder

__all__ = ["DIGESTS"]

_SHA256_BITS = 256


def _to_base64(_call: Call, columns: Sequence[Column]) -> Column:
    return F.base64(columns[0].cast("binary"))


def _from_base64(_call: Call, columns: Sequence[Column]) -> Column:
    return F.try_to_binary(columns[0], F.lit("base64")).cast("string")


DIGESTS: dict[str, Builder] = {
    "MD5": lambda _call, columns: F.md5(columns[0].cast("binary")),
    "SHA1": lambda _call, columns: F.sha1(columns[0].cast("binary")),
    "SHA256": lambda _call, columns: F.sha2(columns[0].cast("binary"), _SHA256_BITS),
    "TO_BASE64": _to_base64,
    "FROM_BASE64": _from_base64,
    "HASH_CODE": lambda _call, columns: hash_code(columns[0].cast("string")),
}
