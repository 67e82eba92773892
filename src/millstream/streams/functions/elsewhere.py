"""Functions that Flink has and this set has not: an error can say why, in place of "unknown"."""

from __future__ import annotations

__all__ = ["FLINK_ONLY"]

_WATERMARK = "a watermark belongs to a whole micro-batch here; late rows are counted and can be kept by the job."
_PREDICT = "it stands in FROM: ML_PREDICT(TABLE t, MODEL m, DESCRIPTOR(a, b))."
_MODEL = "a model is only asked by ML_PREDICT; a user function can do the rest."

FLINK_ONLY: dict[str, str] = {
    "CURRENT_WATERMARK": _WATERMARK,
    "SOURCE_WATERMARK": _WATERMARK,
    "CURRENT_CATALOG": "SHOW CURRENT CATALOG says it, and CURRENT_DATABASE() gives the database.",
    "OBJECT_OF": "rows have named columns: CAST(ROW(...) AS ROW<...>) makes one.",
    "OBJECT_UPDATE": "rows have named columns: CAST(ROW(...) AS ROW<...>) makes one.",
    "OVERLAPS": "compare the bounds: start1 < end2 AND start2 < end1.",
    "URL_DECODE_RECURSIVE": "URL_DECODE may be called as often as the text was encoded.",
    "ML_PREDICT": _PREDICT,
    "ML_EVALUATE": _MODEL,
    "VECTOR_SEARCH": _MODEL,
}
"""Their names in upper case, and the reason."""
