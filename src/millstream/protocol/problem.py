"""Errors over HTTP: `application/problem+json` of RFC 9457, with the number of the error catalogue. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from millstream.model.errors import MillstreamError

__all__ = ["PROBLEM_TYPE", "encode_problem"]

PROBLEM_TYPE: Final = "application/problem+json"
"""The content type of such an answer."""


def encode_problem(status: int, error: MillstreamError, more: Mapping[str, Any] | None = None) -> bytes:
    """The JSON object of an error; `more` are further members, as RFC 9457 allows them."""
    problem: dict[str, Any] = {
        "type": f"urn:millstream:{error.label}",
        "title": error.entry.meaning,
        "status": status,
        "detail": error.message,
        "code": error.label,
        "name": error.name,
    }
    if error.remedy:
        problem["remedy"] = error.remedy
    if more:
        problem.update(more)
    return orjson.dumps(problem)
