"""Flink's functions that are not supported, with the reason for the error message."""

from __future__ import annotations

__all__ = ["FLINK_ONLY"]

_WATERMARK = "no source here has watermarks of its own: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND declares one."
_PREDICT = "it stands in FROM: ML_PREDICT(TABLE t, MODEL m, DESCRIPTOR(a, b))."
_BITMAP = "there is no BITMAP type; COUNT(DISTINCT x) counts exactly, ARRAY_AGG(DISTINCT x) keeps the numbers."
_MODEL = "only ML_PREDICT calls a model; a user function can do the rest."

FLINK_ONLY: dict[str, str] = {
    "SOURCE_WATERMARK": _WATERMARK,
    "CURRENT_CATALOG": "SHOW CURRENT CATALOG says it, and CURRENT_DATABASE() gives the database.",
    "OBJECT_OF": "rows have named columns: CAST(ROW(...) AS ROW<...>) makes one.",
    "OBJECT_UPDATE": "rows have named columns: CAST(ROW(...) AS ROW<...>) makes one.",
    "OVERLAPS": "compare the bounds: start1 < end2 AND start2 < end1.",
    **{
        f"BITMAP_{name}": _BITMAP
        for name in (
            "AND",
            "ANDNOT",
            "AND_AGG",
            "AND_CARDINALITY_AGG",
            "BUILD",
            "BUILD_AGG",
            "BUILD_CARDINALITY_AGG",
            "CARDINALITY",
            "FROM_BYTES",
            "OR",
            "OR_AGG",
            "OR_CARDINALITY_AGG",
            "TO_ARRAY",
            "TO_BYTES",
            "TO_STRING",
            "XOR",
            "XOR_AGG",
            "XOR_CARDINALITY_AGG",
        )
    },
    "URL_DECODE_RECURSIVE": "URL_DECODE may be called as often as the text was encoded.",
    "ML_PREDICT": _PREDICT,
    "ML_EVALUATE": _MODEL,
    "VECTOR_SEARCH": _MODEL,
}
"""Their names in upper case, and the reason."""
