"""The route table of the HTTP interface: one row per operation, used by the interface and its OpenAPI page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from millstream.job_server.job_record import Submission
from millstream.job_server.job_service import SavepointDemand, Update

__all__ = ["ROUTES", "JobAction", "JobRoute"]

Status = Literal[200, 201]


class JobAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an operation that takes nothing."""


@dataclass(frozen=True, slots=True)
class JobRoute:
    """One operation. `answer` is the key of the answer's object that has the result, blank for the whole object."""

    method: Literal["GET", "POST"]
    path: str
    operation: str
    meaning: str
    body: type[msgspec.Struct] | None = None
    status: Status = 200
    query: tuple[tuple[str, str], ...] = ()
    """Its parameters behind the question mark, whole numbers, with what they mean."""

    refusals: tuple[int, ...] = ()
    """Statuses beside those that every operation may have (307, 400, 401, 500, 503)."""


ROUTES: Final = (
    JobRoute(
        "POST", "/v1/jobs", "submit", "Takes a job in, once its text is bound.", Submission, 201, (), (409, 413, 422)
    ),
    JobRoute("GET", "/v1/jobs", "list", "All jobs, by name."),
    JobRoute(
        "GET",
        "/v1/jobs/{name}",
        "describe",
        "One job, with its text, its progress and its last failures.",
        refusals=(404,),
    ),
    JobRoute(
        "POST", "/v1/jobs/{name}/pause", "pause", "Stops the job; its checkpoint stays.", JobAction, refusals=(404, 409)
    ),
    JobRoute(
        "POST",
        "/v1/jobs/{name}/resume",
        "resume",
        "Starts a job again that is paused or has failed.",
        JobAction,
        refusals=(404, 409),
    ),
    JobRoute(
        "POST",
        "/v1/jobs/{name}/cancel",
        "cancel",
        "Ends the job for good; its checkpoint stays on the disk.",
        JobAction,
        refusals=(404, 409),
    ),
    JobRoute(
        "POST",
        "/v1/jobs/{name}/update",
        "update",
        "What another text, settings or demands change; with apply it is done.",
        Update,
        refusals=(404, 409, 413, 422),
    ),
    JobRoute(
        "POST",
        "/v1/jobs/{name}/savepoint",
        "savepoint",
        "Writes a savepoint of the job, which goes on; where it lies and what it says of itself.",
        SavepointDemand,
        201,
        refusals=(404, 409, 422),
    ),
    JobRoute(
        "GET",
        "/v1/jobs/{name}/logs",
        "logs",
        "The last lines of the log of the job's driver.",
        query=(("lines", "How many, 100 by default, 10,000 at most."),),
        refusals=(404,),
    ),
    JobRoute("GET", "/v1/openapi.json", "openapi", "This description, as OpenAPI 3.1."),
)
