"""Whether the objects below a broker's name are its own: a second broker of that name changes none of them.

A broker, or a set of replicas, draws a token once, keeps it as state and claims its name in the object store with it.
A restored broker knows the token of the one that it follows, and takes its claim over once, when it begins to write;
should the other one come back, it is the one that is refused.
"""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import Executor
from datetime import UTC, datetime
from typing import Final

import msgspec

from millstream.broker.state.document import Document, SavedDocument, encode_document
from millstream.broker.state.state_log import StateLog
from millstream.broker.state.state_table import StateTable
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.store.snapshot import Snapshot
from millstream.tiered.claims import OwnerClaim, OwnerClaims
from millstream.tiered.objects import ObjectStore, ObjectStoreAway

__all__ = ["ColdOwner", "OwnerToken", "encode_takeover"]

RECHECK_S: Final = 300.0
"""Seconds after which a broker looks again whether its name is still its own, before it changes anything more."""

_VERSION: Final = 1
_KEY: Final = "token"
_TOKEN_BYTES: Final = 16
_ATTEMPTS: Final = 3


class OwnerToken(msgspec.Struct, frozen=True):
    """By which a broker, or its set, knows its own claim; `follows` is the token whose claim it may take over."""

    token: str = ""
    follows: str = ""


class _OwnerDocument(Document):
    owner: OwnerToken


class ColdOwner:
    """The claim of one broker; `place` says to people where it is."""

    def __init__(self, saved: Snapshot, *, cluster: str, broker: str, place: str, clock: Clock) -> None:
        document = SavedDocument(saved, _OwnerDocument, noun="owner of cold messages", version=_VERSION)
        self.table = StateTable("cold_owner", document, OwnerToken, self)
        """The saved form of the token."""
        self._own = OwnerToken()
        self._cluster = cluster
        self._broker = broker
        self._place = place
        self._clock = clock
        self._checked_s: float | None = None
        self._turn = asyncio.Lock()

    # The token, as state of the broker

    def make_document(self) -> _OwnerDocument:
        """See `StateOwner`."""
        return _OwnerDocument(version=_VERSION, owner=self._own)

    def load_document(self, document: _OwnerDocument) -> None:
        """See `StateOwner`."""
        self._own = document.owner

    def apply_change(self, key: str, value: OwnerToken | None) -> None:
        """See `StateOwner`."""
        self._own = value or OwnerToken()

    # The claim

    def start(self, objects: ObjectStore, threads: Executor, state: StateLog) -> None:
        """Ask this store from now on; the next `check` does so."""
        self._claims = OwnerClaims(objects, self._cluster, self._broker)
        self._threads, self._state, self._checked_s = threads, state, None

    async def check(self) -> None:
        """Refuse to go on where the name is another's: PREFIX_TAKEN. Claims it where it is nobody's.

        Asks the store every `RECHECK_S`. Raises STORE_FORMAT, ObjectStoreDenied, ObjectStoreAway as well.
        """
        async with self._turn:
            now_s = asyncio.get_running_loop().time()
            if self._checked_s is not None and now_s - self._checked_s < RECHECK_S:
                return
            self._checked_s = None
            if not self._own.token:
                self._write(OwnerToken(secrets.token_hex(_TOKEN_BYTES), self._own.follows))
            loop, own = asyncio.get_running_loop(), self._own
            for _ in range(_ATTEMPTS):
                found = await loop.run_in_executor(self._threads, self._claims.newest)
                number, newest = (0, None) if found is None else found
                if newest is not None and newest.token == own.token:
                    self._checked_s = now_s
                    return
                if newest is not None and newest.token != own.follows:
                    raise self._refusal(number, newest)
                if not self._state.settle():
                    # A failover may take the token back, and the next master must not find the claim of a stranger.
                    return
                claim = OwnerClaim(own.token, self._place, self._clock.now_ms())
                await loop.run_in_executor(self._threads, self._claims.put, number + 1, claim)
            raise ObjectStoreAway("it does not list the claim that it has just got")

    def _write(self, own: OwnerToken) -> None:
        self.table.write(_KEY, own)
        self._own = own

    def _refusal(self, number: int, newest: OwnerClaim) -> MillstreamError:
        since = datetime.fromtimestamp(newest.claimed_ms / 1000, UTC).isoformat(timespec="seconds")
        return MillstreamError(
            "PREFIX_TAKEN",
            f"The object store has objects of another broker {self._broker!r} of {self._cluster!r}: that of "
            f"{newest.place[:500]}, since {since}. This one, {self._place}, changes none of them and uploads nothing.",
            remedy=(
                "Give one of them another name or tiered.url. If the other one is gone for ever, restore it, or delete "
                f"the object {self._claims.key(number)}."
            ),
        )


def encode_takeover(objects: ObjectStore, cluster: str, broker: str) -> bytes:
    """The document of a restored broker, which may take over the claim that there is now. Waits for the store.

    Raises STORE_FORMAT, ObjectStoreDenied, ObjectStoreAway.
    """
    found = OwnerClaims(objects, cluster, broker).newest()
    owner = OwnerToken(follows="" if found is None else found[1].token)
    return encode_document(_OwnerDocument(version=_VERSION, owner=owner))
