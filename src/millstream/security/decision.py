"""Whether a user may do something, and which entry says so.

The order is that of RocketMQ's access control 2.0: a super user may; else the custom entries are asked, and the default
ones only if none of them matches; of those that match, the most specific one decides, and of equal ones the one that
denies. Where nothing matches, the answer is no.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.security.policy import Action, Decision, PolicyEntry, RequiredAccess
from millstream.security.resource import Resource
from millstream.security.user import User

__all__ = ["AccessVerdict", "decide"]


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
    verdicts = [_decide_one(user, entries, action, wish.resource, source) for action in wish.actions]
    allowed = (verdict for verdict in verdicts if verdict.allowed)
    denied = (verdict for verdict in verdicts if verdict.entry is not None)
    return next(allowed, None) or next(denied, verdicts[0])


def _decide_one(
    user: User, entries: Sequence[PolicyEntry], action: Action, resource: Resource, source: str
) -> AccessVerdict:
    for entry in entries:
        if entry.matches(action, resource, source):
            return AccessVerdict(entry.decision is Decision.ALLOW, f"the entry: {entry}", entry)
    return AccessVerdict(False, f"no entry of {user.name} matches")
