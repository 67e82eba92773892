"""The HTML page of jobs: a table without scripts or external resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

__all__ = ["job_page"]

_REFRESH_S: Final = 5
_COLUMNS: Final = ("job", "state", "rows in", "rows out", "behind", "restarts", "last failure or reason")


def job_page(jobs: Sequence[Mapping[str, Any]]) -> str:
    """The page of these jobs, as `JobService.jobs` gives them; what is unknown is left blank."""
    rows = "\n".join(_row(job) for job in jobs) or f'<tr><td colspan="{len(_COLUMNS)}">There are no jobs.</td></tr>'
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Millstream jobs</title>
<meta http-equiv="refresh" content="{_REFRESH_S}">
<style>body{{font-family:sans-serif;margin:2em}}td,th{{text-align:left;padding:.2em 1em .2em 0}}</style>
</head><body><h1>Jobs</h1><table><tr>{head}</tr>
{rows}
</table><p>The same as JSON: <a href="/v1/jobs">/v1/jobs</a>; what can be asked:
<a href="/v1/openapi.json">/v1/openapi.json</a>.</p></body></html>
"""


def _row(job: Mapping[str, Any]) -> str:
    progress = job["progress"] or {}
    rows_out = sum(progress["rows_out"].values()) if progress else None
    failures = job["failures"]
    words = job["reason"] or (failures[-1]["message"] if failures and job["state"] == "failed" else "")
    cells = (
        job["name"],
        job["state"],
        progress.get("rows_in"),
        rows_out,
        progress.get("behind"),
        job["restarts"],
        words,
    )
    return "<tr>" + "".join(f"<td>{'' if cell is None else escape(str(cell))}</td>" for cell in cells) + "</tr>"
