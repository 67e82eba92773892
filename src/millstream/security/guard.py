"""The guard of a port: authenticates requests, authorizes them, and audits every refusal."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn

from millstream.model.clock import Clock
from millstream.model.errors import AccessRefused
from millstream.model.line_budget import LineBudget
from millstream.security.policy import Action, Decision, PolicyEntry, RequiredAccess
from millstream.security.resource import Resource
from millstream.security.scram import ScramExchange
from millstream.security.signature import (
    ACCESS_KEY,
    SIGNATURE,
    client_id_signature,
    decoded_signature,
    header_digest,
    parse_authorization,
    signed_fields_digest,
)
from millstream.security.users import AccessBook, User

__all__ = [
    "BURST_LINES",
    "MAX_LINE_CHARACTERS",
    "MAX_REMEMBERED",
    "REMEMBER_S",
    "AccessVerdict",
    "AuditLog",
    "Guard",
    "decide",
]


_log = logging.getLogger("millstream.audit")

BURST_LINES: Final = 100
"""Refusals that are written one after the other at most; after them one a second."""

MAX_LINE_CHARACTERS: Final = 800
"""Characters of one line at most."""

_MAX_VALUE_CHARACTERS = 160


class AuditLog:
    """Writes the lines. Values come from strangers: they are cut, and JSON escapes what is not printable."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines = LineBudget(clock, burst_lines=BURST_LINES)
        self.refusals = 0
        """Refusals so far, written or not."""

    def note_refusal(self, *, peer: str, user: str, action: str, resource: str, reason: str) -> None:
        """A request was refused."""
        self.refusals += 1
        left_out = self._lines.admit()
        if left_out is None:
            return
        values = {"peer": peer, "user": user, "action": action, "resource": resource, "reason": reason}
        if left_out:
            values["left_out"] = str(left_out)
        _log.warning("%s", self._line("refused", values))

    def note_change(self, *, peer: str, user: str, action: str, subject: str) -> None:
        """A super user changed users or policies."""
        values = {"peer": peer, "user": user, "action": action, "subject": subject}
        _log.warning("%s", self._line("changed", values))

    def _line(self, event: str, values: dict[str, str]) -> str:
        time = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        room = _MAX_VALUE_CHARACTERS
        while True:
            cut = {name: value[:room] for name, value in values.items()}
            line = json.dumps({"time": time, "event": event, **cut})
            if len(line) <= MAX_LINE_CHARACTERS:
                return line
            # An escaped character takes six.
            room //= 2


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """The answer and its reason; `entry` is the one that decided, None where none did."""

    allowed: bool
    reason: str
    entry: PolicyEntry | None = None


def decide(user: User, entries: Sequence[PolicyEntry], wish: RequiredAccess, source: str) -> AccessVerdict:
    """The verdict on a wish of `user`, whose entries are sorted by rank, from the address `source`.

    Of several actions one that is allowed is enough.
    """
    if not user.enabled:
        return AccessVerdict(False, f"the user {user.name} is disabled")
    if user.is_super:
        return AccessVerdict(True, f"{user.name} is a super user")
    if wish.is_reserved:
        return AccessVerdict(False, f"{wish.resource} holds the state of proxies, which only super users may touch")
    verdicts = [_decide_one(user, entries, action, wish, source) for action in wish.actions]
    allowed = (verdict for verdict in verdicts if verdict.allowed)
    denied = (verdict for verdict in verdicts if verdict.entry is not None)
    return next(allowed, None) or next(denied, verdicts[0])


def _decide_one(
    user: User, entries: Sequence[PolicyEntry], action: Action, wish: RequiredAccess, source: str
) -> AccessVerdict:
    resource = wish.resource
    if wish.within is not None:
        # An entry for everything must not decide before one for the topic that holds the messages.
        entry = _first_entry([one for one in entries if one.pattern.kind is resource.kind], action, resource, source)
        if entry is not None:
            return _verdict_of(entry)
        resource = wish.within
    entry = _first_entry(entries, action, resource, source)
    if entry is not None:
        return _verdict_of(entry)
    return AccessVerdict(False, f"no entry of {user.name} matches")


def _first_entry(entries: Sequence[PolicyEntry], action: Action, resource: Resource, source: str) -> PolicyEntry | None:
    return next((entry for entry in entries if entry.matches(action, resource, source)), None)


def _verdict_of(entry: PolicyEntry) -> AccessVerdict:
    return AccessVerdict(entry.decision is Decision.ALLOW, f"the entry: {entry}", entry)


MAX_REMEMBERED: Final = 4_096
"""Verified headers that are remembered at most, and verdicts; over it all of them are forgotten."""

REMEMBER_S: Final = 60.0
"""Seconds that a verified header of a gRPC call is remembered."""

_NONCE_BYTES: Final = 18
_SCRAM_KEY_BYTES: Final = 32
_NOBODY = "nobody has this secret"


class Guard:
    """Checks requests against `book`. Changes of the book hold from the next request on."""

    def __init__(self, book: AccessBook, audit: AuditLog, *, clock: Clock) -> None:
        self.book = book
        self.audit = audit
        self._clock = clock
        self._scram_key = secrets.token_bytes(_SCRAM_KEY_BYTES)
        self._verified: dict[tuple[str, str], tuple[str, float]] = {}
        self._verdicts: dict[tuple[str, RequiredAccess, str], AccessVerdict] = {}
        book.on_change.append(self._forget)

    def caller_of_headers(self, authorization: str, date_time: str, *, peer: str, action: str) -> str:
        """The name of the user who signed a gRPC call's headers; UNAUTHORIZED."""
        now_s = self._clock.monotonic_s()
        known = self._verified.get((authorization, date_time))
        if known is not None and known[1] > now_s:
            return known[0]
        found = parse_authorization(authorization)
        if found is None or not found.name:
            reason = "no credentials" if not authorization or found is not None else "the header cannot be read"
            raise self._unauthorized_error("", reason, peer, action)
        if not date_time:
            raise self._unauthorized_error(found.name, "no date was signed", peer, action)
        digest = header_digest(self._secret_of(found.name), date_time)
        self._check_digest(found.name, digest, found.digest, peer, action)
        if len(self._verified) >= MAX_REMEMBERED:
            self._verified.clear()
        self._verified[authorization, date_time] = (found.name, now_s + REMEMBER_S)
        return found.name

    def caller_of_fields(
        self, ext: Mapping[str, str], parts: Iterable[bytes | memoryview], version: int, *, peer: str, action: str
    ) -> str:
        """The name of the user who signed a remoting request's fields and body; UNAUTHORIZED."""
        name = ext.get(ACCESS_KEY, "")
        if not name:
            raise self._unauthorized_error("", "no credentials", peer, action)
        digest = signed_fields_digest(self._secret_of(name), ext, parts, version=version)
        self._check_digest(name, digest, decoded_signature(ext.get(SIGNATURE, "")), peer, action)
        return name

    def caller_of_secret(self, name: str, password: bytes, *, client_id: str = "", peer: str, action: str) -> str:
        """The name of the user whose secret the password is; UNAUTHORIZED.

        Of an MQTT client with a `client_id` it may also be the Base64 text of HMAC-SHA1 of the client id under the
        secret, as in RocketMQ MQTT. Both are compared in constant time.
        """
        if not name:
            raise self._unauthorized_error("", "no credentials", peer, action)
        secret = self._secret_of(name)
        is_secret = hmac.compare_digest(secret.encode(), password)
        is_signed = hmac.compare_digest(client_id_signature(secret, client_id), password) and bool(client_id)
        self._check_user(name, is_secret or is_signed, "wrong password", peer, action)
        return name

    def begin_scram(self) -> ScramExchange:
        """An authentication by SCRAM-SHA-256; `caller_of_scram` ends it."""
        return ScramExchange(self._secret_of, self._scram_key, secrets.token_urlsafe(_NONCE_BYTES))

    def caller_of_scram(self, exchange: ScramExchange, message: bytes, *, peer: str, action: str) -> tuple[str, bytes]:
        """The name of the user who knows the secret, and what proves that this side does, too; UNAUTHORIZED."""
        try:
            is_known, proof = exchange.end(message)
        except ValueError as error:
            raise self._unauthorized_error(exchange.name, str(error), peer, action) from None
        self._check_user(exchange.name, is_known, "wrong proof", peer, action)
        return exchange.name, proof

    def allow(self, name: str, wishes: Iterable[RequiredAccess], *, peer: str, action: str) -> None:
        """Return if the user may do all of it; ACCESS_DENIED, or UNAUTHORIZED where the user is gone."""
        for wish in wishes:
            verdict = self._verdict(name, wish, peer, action)
            if not verdict.allowed:
                self.audit.note_refusal(peer=peer, user=name, action=action, resource=str(wish), reason=verdict.reason)
                grant = f"millstream acl grant {name} {wish.actions[0].value} '{wish.resource}'"
                remedy = "Only super users may." if wish.is_reserved else f"A super user can grant it: {grant}."
                raise AccessRefused("ACCESS_DENIED", f"The user {name!r} may not {wish}.", remedy=remedy)

    def may(self, name: str, wish: RequiredAccess, *, peer: str) -> bool:
        """Whether the user may; nothing is audited, because it is not the user who asks."""
        return self.book.find(name) is not None and self._verdict(name, wish, peer, "").allowed

    def is_super(self, name: str) -> bool:
        """Whether the user may do everything."""
        user = self.book.find(name)
        return user is not None and user.enabled and user.is_super

    def require_super(self, name: str, *, peer: str, action: str) -> None:
        """Return if the user is a super user; else ACCESS_DENIED."""
        if not self.is_super(name):
            self.audit.note_refusal(peer=peer, user=name, action=action, resource="*", reason="no super user")
            raise AccessRefused(
                "ACCESS_DENIED", f"The user {name!r} is no super user, who alone may do this.", remedy=""
            )

    def refuse_foreign_client(self, name: str, *, peer: str, action: str) -> NoReturn:
        """Refuse a call under the client id of another user's client: UNAUTHORIZED."""
        raise self._unauthorized_error(name, "the client id is another user's", peer, action)

    def _verdict(self, name: str, wish: RequiredAccess, peer: str, action: str) -> AccessVerdict:
        key = (name, wish, peer)
        known = self._verdicts.get(key)
        if known is not None:
            return known
        user = self.book.find(name)
        if user is None:
            raise self._unauthorized_error(name, "the user does not exist", peer, action)
        verdict = decide(user, self.book.entries(name), wish, peer)
        if len(self._verdicts) >= MAX_REMEMBERED:
            self._verdicts.clear()
        self._verdicts[key] = verdict
        return verdict

    def _secret_of(self, name: str) -> str:
        # A digest is made for unknown names too, so that the time of the answer does not tell which names exist.
        user = self.book.find(name)
        return _NOBODY if user is None else user.secret

    def _check_digest(self, name: str, expected: bytes, found: bytes, peer: str, action: str) -> None:
        self._check_user(name, hmac.compare_digest(expected, found), "wrong signature", peer, action)

    def _check_user(self, name: str, is_equal: bool, reason: str, peer: str, action: str) -> None:
        user = self.book.find(name)
        if user is None:
            raise self._unauthorized_error(name, "the user does not exist", peer, action)
        if not is_equal:
            raise self._unauthorized_error(name, reason, peer, action)
        if not user.enabled:
            raise self._unauthorized_error(name, "the user is disabled", peer, action)

    def _unauthorized_error(self, name: str, reason: str, peer: str, action: str) -> AccessRefused:
        self.audit.note_refusal(peer=peer, user=name, action=action, resource="", reason=reason)
        if name and self.book.awaits_rules:
            return AccessRefused("USERS_NOT_KNOWN_YET", "No broker has told its users and policies here so far.")
        explanation = (
            "The request carries no credentials." if not name else "The credentials of the request do not hold."
        )
        return AccessRefused("UNAUTHORIZED", explanation)

    def _forget(self) -> None:
        self._verified.clear()
        self._verdicts.clear()
