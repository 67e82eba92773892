"""The OpenAPI 3.1 description of the HTTP interface, generated from its route table."""

from __future__ import annotations

from typing import Any

import msgspec

from millstream import __version__
from millstream.job_server.job_record import MAX_TEXT_BYTES
from millstream.job_server.routes import ROUTES, JobRoute

__all__ = ["openapi_document"]

_ALWAYS = (307, 400, 401, 500, 503)
_WORDS = {
    307: "Another server leads; Location says where.",
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    404: "There is no job of that name.",
    409: "The job's name, state, checkpoint or savepoint does not allow it.",
    413: f"The body has over {MAX_TEXT_BYTES:,} bytes.",
    422: "The job is none: its text does not bind, or it asks for too much.",
    500: "The server met what it does not expect.",
    503: "No server leads, or the broker does not answer.",
}


def openapi_document() -> dict[str, Any]:
    """The document. Its schemas are those of the classes that requests are read into."""
    bodies = list(dict.fromkeys(route.body for route in ROUTES if route.body is not None))
    schemas, parts = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    by_body = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_body)
    refusal = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("code", "number", "message", "remedy")},
        "required": ["code", "number", "message", "remedy"],
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Millstream job server", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**parts, "Refusal": refusal},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: JobRoute, by_body: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "description": words, "schema": {"type": "integer"}}
        for name, words in route.query
    ]
    if "{name}" in route.path:
        parameters.insert(0, {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}})
    answers: dict[str, Any] = {str(route.status): {"description": "Done.", "content": _json({"type": "object"})}}
    for status in sorted((*_ALWAYS, *route.refusals)):
        answers[str(status)] = {
            "description": _WORDS[status],
            "content": _json({"$ref": "#/components/schemas/Refusal"}),
        }
    found: dict[str, Any] = {"operationId": route.operation, "summary": route.meaning, "responses": answers}
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": _json(by_body[route.body])}
    return found


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
