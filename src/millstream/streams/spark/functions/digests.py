"""Digests, base64 and Java's string hash."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.functions.text.strings import hash_code
from millstream.streams.plan.expressions import Call
from millstream.streams.spark.functions.arrow import by_row
from millstream.streams.spark.functions.builder import Builder

__all__ = ["DIGESTS"]

_SHA2_BITS = (224, 256, 384, 512)


def _sha2(bits: int) -> Builder:
    return lambda _call, columns: F.sha2(columns[0].cast("binary"), bits)


def _sha2_of_bits(_call: Call, columns: Sequence[Column]) -> Column:
    text, bits = columns[0].cast("binary"), columns[1]
    found = F.lit(None).cast("string")
    for known in _SHA2_BITS:
        found = F.when(bits == known, F.sha2(text, known)).otherwise(found)
    return found


def _to_base64(_call: Call, columns: Sequence[Column]) -> Column:
    return F.base64(columns[0].cast("binary"))


def _from_base64(_call: Call, columns: Sequence[Column]) -> Column:
    return F.make_valid_utf8(F.try_to_binary(columns[0], F.lit("base64")).cast("string"))


DIGESTS: dict[str, Builder] = {
    "MD5": lambda _call, columns: F.md5(columns[0].cast("binary")),
    "SHA1": lambda _call, columns: F.sha1(columns[0].cast("binary")),
    **{f"SHA{bits}": _sha2(bits) for bits in _SHA2_BITS},
    "SHA2": _sha2_of_bits,
    "TO_BASE64": _to_base64,
    "FROM_BASE64": _from_base64,
    "HASH_CODE": lambda _call, columns: by_row(hash_code, "int", columns[0].cast("string")),
}
