"""Decides which broker holds a broker name at a nameserver: the first live one with that name and id. Pure.

A broker holds its name over the connection by which it registered. Another connection gets the name only where the
holder is gone: it said goodbye, its connection closed, its lease ended, or it missed its beat and does not answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic, TypeVar

__all__ = ["BEAT_LIMIT_S", "CLOSED_GRACE_S", "Claim", "ClaimVerdict", "Holder", "Holders"]

BEAT_LIMIT_S: Final = 40.0
"""Seconds of silence after which a broker is probed if another one wants its name; brokers register every 30 s."""

CLOSED_GRACE_S: Final = 2.0
"""Seconds for which a broker whose connection closed has its name to itself: a cut connection is opened again at once,
and a broker that died comes back under another address later than that."""

_C = TypeVar("_C")


class ClaimVerdict(Enum):
    """Whether a claim is let in."""

    FREE = auto()
    TAKEN = auto()
    ASK = auto()
    """The holder may be gone: whoever cannot be asked, or does not answer, is."""


@dataclass(frozen=True, slots=True)
class Claim(Generic[_C]):
    """A broker that wants a name and an id. `peer_host` is the machine from which its connection comes."""

    name: str
    broker_id: int
    address: str
    peer_host: str
    connection: _C


@dataclass(slots=True)
class Holder(Generic[_C]):
    """Who has them. `heard_s`: when it last proved that it lives. `closed_s`: when its connection closed, if it did."""

    claim: Claim[_C]
    heard_s: float
    closed_s: float | None = None

    def judge(self, claim: Claim[_C], now_s: float) -> ClaimVerdict:
        """Whether it gives way to the claim."""
        held = self.claim
        if held.connection == claim.connection:
            return ClaimVerdict.FREE
        is_same_address = held.address == claim.address
        if self.closed_s is not None:
            return (
                ClaimVerdict.FREE if is_same_address or now_s - self.closed_s >= CLOSED_GRACE_S else ClaimVerdict.TAKEN
            )
        if is_same_address:
            # The machine that has the address has opened another connection, before the old one is seen to be dead.
            return ClaimVerdict.FREE if held.peer_host == claim.peer_host else ClaimVerdict.ASK
        return ClaimVerdict.TAKEN if now_s - self.heard_s < BEAT_LIMIT_S else ClaimVerdict.ASK


@dataclass(slots=True)
class Holders(Generic[_C]):
    """All of one nameserver, by name and id. Times are seconds of a clock that never goes back."""

    _held: dict[tuple[str, int], Holder[_C]] = field(default_factory=dict)
    _closed: dict[tuple[str, int], float] = field(default_factory=dict)
    """Since when those are closed that still have their grace, the first one first."""

    def of(self, name: str, broker_id: int) -> Holder[_C] | None:
        """Who has the name and the id."""
        return self._held.get((name, broker_id))

    def against(self, claim: Claim[_C], ids: tuple[int, ...], now_s: float) -> tuple[ClaimVerdict, Holder[_C] | None]:
        """The verdict on a claim, and the holder that it is due to.

        `ids` are all that are registered under the name: those at the claim's address would be replaced as well.
        """
        self._forget_closed(now_s)
        found = [holder for number in {claim.broker_id, *ids} if (holder := self._held.get((claim.name, number)))]
        concerned = [
            holder
            for holder in found
            if holder.claim.broker_id == claim.broker_id or holder.claim.address == claim.address
        ]
        verdicts = {holder.judge(claim, now_s): holder for holder in concerned}
        for verdict in (ClaimVerdict.TAKEN, ClaimVerdict.ASK):
            if verdict in verdicts:
                return verdict, verdicts[verdict]
        return ClaimVerdict.FREE, None

    def hold(self, claim: Claim[_C], now_s: float) -> None:
        """The claim was let in."""
        key = claim.name, claim.broker_id
        self._held[key] = Holder(claim, now_s)
        self._closed.pop(key, None)

    def release(self, name: str, broker_id: int) -> None:
        """The name is free for everybody; nothing where nobody held it."""
        self._held.pop((name, broker_id), None)
        self._closed.pop((name, broker_id), None)

    def close(self, connection: _C, now_s: float) -> list[tuple[str, int]]:
        """What was held over a connection that closed; it stays reserved for `CLOSED_GRACE_S`."""
        self._forget_closed(now_s)
        lost = [
            key
            for key, holder in self._held.items()
            if holder.claim.connection == connection and holder.closed_s is None
        ]
        for key in lost:
            self._held[key].closed_s = self._closed[key] = now_s
        return lost

    def may_unregister(self, claim: Claim[_C]) -> bool:
        """Whether who asks from there may take the registration back: its connection, or the same machine for it."""
        holder = self._held.get((claim.name, claim.broker_id))
        if holder is None or holder.claim.connection == claim.connection:
            return True
        return (holder.claim.address, holder.claim.peer_host) == (claim.address, claim.peer_host)

    def _forget_closed(self, now_s: float) -> None:
        for key, closed_s in list(self._closed.items()):
            if now_s - closed_s < CLOSED_GRACE_S:
                break
            self.release(*key)
