"""Requests of Flink's SQL Gateway REST API, versions 1 to 4, and their answers; no sockets.

Format: Flink's REST endpoint of the SQL gateway (SqlGatewayRestEndpoint, rest_v1 to rest_v4 of its OpenAPI pages).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from millstream import __version__
from millstream.gateway.jobs import GatewayJobs
from millstream.gateway.logical_types import logical_type
from millstream.gateway.operations import GatewayOperation, OperationStatus, StatementResult
from millstream.gateway.row_values import RowFormat, row_writer
from millstream.gateway.sessions import GatewaySession, SessionBook
from millstream.gateway.statements import configure, execute, set_properties
from millstream.model.errors import MillstreamError
from millstream.streams.functions.calendar import zone_of
from millstream.streams.sql.options.settings import SETTINGS

__all__ = ["MAX_BODY_BYTES", "PRODUCT", "VERSIONS", "GatewayApi", "Reply"]

MAX_BODY_BYTES: Final = 1024 * 1024
"""Bytes of a request's body at most."""

VERSIONS: Final = ("V1", "V2", "V3", "V4")
"""Those of Flink's API that are answered."""

PRODUCT: Final = "Millstream"
"""What /info names."""

_STATUS: Final = {
    "GATEWAY_SESSION_NOT_FOUND": 404,
    "GATEWAY_OPERATION_NOT_FOUND": 404,
    "GATEWAY_FULL": 503,
    "GATEWAY_TOKEN": 400,
    "GATEWAY_REQUEST": 400,
    "GATEWAY_UNSUPPORTED": 501,
}
"""HTTP's status of an error; 500 for all others, as Flink's gateway has it."""

_PREFIX: Final = re.compile(r"/v([1-4])(?=/)")
_ZONE: Final = "table.local-time-zone"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `may_wait`: nothing has come yet, and the same request may be answered better in a moment."""

    status: int
    document: Mapping[str, Any]
    may_wait: bool = False


@dataclass(frozen=True, slots=True)
class _Request:
    version: int
    query: Mapping[str, str]
    body: Mapping[str, Any]
    parts: tuple[str, ...]
    """What the path has for the places of its pattern: the session, the operation, the token."""

    def text(self, name: str, default: str | None = None) -> str:
        """A text of the body. Raises GATEWAY_REQUEST."""
        value = self.body.get(name)
        if value is None:
            value = default
        if not isinstance(value, str):
            raise MillstreamError("GATEWAY_REQUEST", f"The body has no text {name!r}.")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """Pairs of texts of the body; none where it has no such member. Raises GATEWAY_REQUEST."""
        value = self.body.get(name) or {}
        if not isinstance(value, dict):
            raise MillstreamError("GATEWAY_REQUEST", f"{name!r} is no object.")
        return {str(key): str(item) for key, item in value.items()}


class GatewayApi:
    """Answers requests. Safe to call from any thread.

    An answer waits for no statement, but configuring a session waits for those before it.
    """

    def __init__(self, sessions: SessionBook, jobs: GatewayJobs) -> None:
        self._sessions = sessions
        self._jobs = jobs
        session, operation = r"/sessions/([^/]+)", r"/sessions/([^/]+)/operations/([^/]+)"
        routes: tuple[tuple[str, str, Callable[[_Request], Reply]], ...] = (
            ("GET", "/info", _tell_info),
            ("GET", "/api_versions", _tell_versions),
            ("POST", "/sessions", self._open_session),
            ("GET", session, self._tell_session),
            ("DELETE", session, self._close_session),
            ("POST", f"{session}/heartbeat", self._note_heartbeat),
            ("POST", f"{session}/configure-session", self._configure_session),
            ("POST", f"{session}/statements", self._run_statement),
            ("GET", f"{session}/complete-statement", self._complete_statement),
            ("POST", f"{session}/complete-statement", self._complete_statement),
            ("POST", f"{session}/scripts", self._refuse_script),
            ("GET", f"{operation}/status", self._tell_status),
            ("POST", f"{operation}/cancel", self._cancel_operation),
            ("DELETE", f"{operation}/close", self._close_operation),
            ("GET", rf"{operation}/result/(\d{{1,18}})", self._fetch_result),
        )
        self._routes = [(method, re.compile(pattern), answer) for method, pattern, answer in routes]

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
        """The answer to a request; an error is an answer, too."""
        prefix = _PREFIX.match(path)
        version = int(prefix[1]) if prefix is not None else len(VERSIONS)
        place = path[prefix.end() :] if prefix is not None else path
        place = place.rstrip("/")
        allowed = set()
        for known, pattern, answer in self._routes:
            found = pattern.fullmatch(place)
            if found is None:
                continue
            allowed.add(known)
            if known == method:
                return _answer_or_problem(
                    lambda found=found, answer=answer: answer(  # type: ignore[misc]
                        _Request(version, query, _document(body), found.groups())
                    )
                )
        if allowed:
            return _problem(405, f"{method[:20]} is not offered there; there is {', '.join(sorted(allowed))}.")
        return _problem(404, f"There is no {path[:200]!r}.")

    def _open_session(self, request: _Request) -> Reply:
        properties = request.texts("properties")
        session = self._sessions.open(request.text("sessionName", ""))
        try:
            set_properties(session, properties)
        except MillstreamError:
            self._sessions.close(session.handle)
            raise
        return Reply(200, {"sessionHandle": session.handle})

    def _tell_session(self, request: _Request) -> Reply:
        session = self._session(request)
        return Reply(200, {"properties": {**session.inert, **session.sql.settings}})

    def _close_session(self, request: _Request) -> Reply:
        self._sessions.close(request.parts[0])
        return Reply(200, {"status": "CLOSED"})

    def _note_heartbeat(self, request: _Request) -> Reply:
        self._session(request)
        return Reply(200, {})

    def _configure_session(self, request: _Request) -> Reply:
        session, statement = self._session(request), request.text("statement")
        # In its own thread, behind the statements that came before.
        session.worker.submit(configure, session, statement).result()
        return Reply(200, {})

    def _run_statement(self, request: _Request) -> Reply:
        session, statement = self._session(request), request.text("statement")
        config = request.texts("executionConfig")
        if isinstance(timeout_ms := request.body.get("executionTimeout"), int) and timeout_ms > 0:
            raise MillstreamError("GATEWAY_UNSUPPORTED", "executionTimeout is not offered; cancel the operation.")
        operation = session.begin()
        session.worker.submit(operation.run, lambda: execute(session, self._jobs, operation, statement, config))
        return Reply(200, {"operationHandle": operation.handle})

    def _complete_statement(self, request: _Request) -> Reply:
        session, statement = self._session(request), request.text("statement")
        position = request.body.get("position", len(statement))
        if not isinstance(position, int) or isinstance(position, bool):
            raise MillstreamError("GATEWAY_REQUEST", "'position' is no whole number.")
        found = session.sql.complete(statement, min(max(0, position), len(statement)))
        return Reply(200, {"candidates": [candidate.text for candidate in found.candidates]})

    def _refuse_script(self, request: _Request) -> Reply:
        self._session(request)
        raise MillstreamError("GATEWAY_UNSUPPORTED", "Scripts are not deployed as applications here.")

    def _tell_status(self, request: _Request) -> Reply:
        return _status(self._operation(request).status)

    def _cancel_operation(self, request: _Request) -> Reply:
        return _status(self._operation(request).end(OperationStatus.CANCELED))

    def _close_operation(self, request: _Request) -> Reply:
        session = self._session(request)
        return _status(session.close_operation(request.parts[1]))

    def _fetch_result(self, request: _Request) -> Reply:
        session, operation = self._session(request), self._operation(request)
        row_format, token = _row_format(request), int(request.parts[2])
        result = operation.result
        uri = f"/v{request.version}/sessions/{session.handle}/operations/{operation.handle}/result/"
        behind = "" if request.version == 1 else f"?rowFormat={row_format.value}"
        if result is None:
            return Reply(200, {"resultType": "NOT_READY", "nextResultUri": f"{uri}{token}{behind}"}, may_wait=True)
        zone = zone_of(session.sql.settings.get(_ZONE, SETTINGS[_ZONE].default))
        page = operation.page(result, token)
        write = row_writer([column.type for column in result.columns], row_format, zone or datetime.UTC)
        document = _payload(result, row_format)
        document["results"]["data"] = [{"kind": kind.name, "fields": write(row)} for kind, row in page.rows]
        document["resultType"] = "EOS" if page.next_token is None else "PAYLOAD"
        if page.next_token is not None:
            document["nextResultUri"] = f"{uri}{page.next_token}{behind}"
        return Reply(200, document, may_wait=page.next_token == token and bool(not page.rows))

    def _session(self, request: _Request) -> GatewaySession:
        return self._sessions.find(request.parts[0])

    def _operation(self, request: _Request) -> GatewayOperation:
        return self._session(request).operation(request.parts[1])


def _tell_info(_request: _Request) -> Reply:
    return Reply(200, {"productName": PRODUCT, "version": __version__})


def _tell_versions(_request: _Request) -> Reply:
    return Reply(200, {"versions": list(VERSIONS)})


def _status(status: OperationStatus) -> Reply:
    return Reply(200, {"status": status.value})


def _payload(result: StatementResult, row_format: RowFormat) -> dict[str, Any]:
    columns = [
        {"name": column.name, "logicalType": logical_type(column.type), "comment": None} for column in result.columns
    ]
    job = {} if result.job_id is None else {"jobID": result.job_id}
    return {
        "resultType": "",
        "isQueryResult": result.is_query,
        **job,
        "resultKind": "SUCCESS_WITH_CONTENT" if result.has_content else "SUCCESS",
        "results": {"columns": columns, "rowFormat": row_format.value, "data": []},
    }


def _row_format(request: _Request) -> RowFormat:
    row_format = request.query.get("rowFormat", RowFormat.JSON_OF_TYPES.value)
    try:
        return RowFormat(row_format.upper())
    except ValueError:
        known = " or ".join(one.value for one in RowFormat)
        raise MillstreamError("GATEWAY_REQUEST", f"rowFormat is {row_format[:40]!r}; it is to be {known}.") from None


def _document(body: bytes) -> Mapping[str, Any]:
    if not body.strip():
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MillstreamError("GATEWAY_REQUEST", f"The body is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise MillstreamError("GATEWAY_REQUEST", "The body is no JSON object.")
    return found


def _answer_or_problem(answer: Callable[[], Reply]) -> Reply:
    try:
        return answer()
    except MillstreamError as error:
        return _problem(_STATUS.get(error.name, 500), str(error))


def _problem(status: int, words: str) -> Reply:
    return Reply(status, {"errors": [words]})
