"""The guard of a port: says who sent a request, and refuses what that user may not do. Every refusal is audited.

A refused caller is told the same whatever was wrong with the credentials; the audit has the reason.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from millstream.model.clock import Clock
from millstream.model.errors import AccessRefused
from millstream.security.audit import AuditLog
from millstream.security.book import AccessBook
from millstream.security.decision import AccessVerdict, decide
from millstream.security.policy import RequiredAccess
from millstream.security.signature import (
    ACCESS_KEY,
    SIGNATURE,
    decoded_signature,
    header_digest,
    parse_authorization,
    signed_fields_digest,
)

__all__ = ["MAX_REMEMBERED", "REMEMBER_S", "Guard"]

MAX_REMEMBERED: Final = 4_096
"""Verified headers that are remembered at most, and verdicts; over it all of them are forgotten."""

REMEMBER_S: Final = 60.0
"""Seconds that a verified header of a gRPC call is remembered."""

_NOBODY = "nobody has this secret"


class Guard:
    """Checks requests against `book`. Changes of the book hold from the next request on."""

    def __init__(self, book: AccessBook, audit: AuditLog, *, clock: Clock) -> None:
        self.book = book
        self.audit = audit
        self._clock = clock
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

    def allow(self, name: str, wishes: Iterable[RequiredAccess], *, peer: str, action: str) -> None:
        """Return if the user may do all of it; ACCESS_DENIED, or UNAUTHORIZED where the user is gone."""
        for wish in wishes:
            verdict = self._verdict(name, wish, peer, action)
            if not verdict.allowed:
                self.audit.note_refusal(peer=peer, user=name, action=action, resource=str(wish), reason=verdict.reason)
                one = wish.actions[0].value
                raise AccessRefused(
                    "ACCESS_DENIED",
                    f"The user {name!r} may not {wish}.",
                    remedy=f"A super user can grant it: millstream acl grant {name} {one} '{wish.resource}'.",
                )

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
        user = self.book.find(name)
        is_equal = hmac.compare_digest(expected, found)
        if user is None:
            raise self._unauthorized_error(name, "the user does not exist", peer, action)
        if not is_equal:
            raise self._unauthorized_error(name, "wrong signature", peer, action)
        if not user.enabled:
            raise self._unauthorized_error(name, "the user is disabled", peer, action)

    def _unauthorized_error(self, name: str, reason: str, peer: str, action: str) -> AccessRefused:
        self.audit.note_refusal(peer=peer, user=name, action=action, resource="", reason=reason)
        if name and self.book.awaits_rules:
            return AccessRefused("USERS_NOT_KNOWN_YET", "No broker has told its users and policies here so far.")
        said = "The request carries no credentials." if not name else "The credentials of the request do not hold."
        return AccessRefused("UNAUTHORIZED", said)

    def _forget(self) -> None:
        self._verified.clear()
        self._verdicts.clear()
