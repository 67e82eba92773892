"""Evaluates requests of replicas and tools on one state: returns a change or a refusal. Pure.

The refusals, their order and their codes are those of RocketMQ 5.3's ReplicasInfoManager (facts only). What differs:
to clean living brokers cleans those that are named, not all of them; a member that is cleaned ends the set's epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from millstream.controller.replica_sets import FIRST_ID, MAX_SET_REPLICAS, Replica, ReplicaSet, SetChange
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.administration.controller_requests import (
    AlterSetRequest,
    ApplyIdRequest,
    CleanBrokerRequest,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.administration.sync_state_sets import SyncStateSetBody

__all__ = ["Lives", "alter_set", "apply_id", "clean_replicas", "register_replica"]

Lives = Callable[[int], bool]
"""Whether the replica of that id lives."""

_MAX_TEXT: Final = 255
"""Characters of a name or an address at most."""


def alter_set(found: ReplicaSet | None, asked: AlterSetRequest, wanted: SyncStateSetBody, lives: Lives) -> SetChange:
    """The master's wish for another set."""
    if found is None:
        raise _refusal("ALTER_SYNC_STATE_SET_FAILED", f"Broker {asked.name[:80]!r} is not known.")
    members = tuple(sorted({*wanted.sync_state_set}))
    if members == found.members:
        raise _refusal("ALTER_SYNC_STATE_SET_FAILED", f"The set of {found.name} has these members already.")
    if found.master is None or asked.master_id != found.master:
        words = f"Replica {asked.master_id} asks for a set of {found.name}, whose master is {found.master}."
        raise _refusal("INVALID_MASTER", words)
    if asked.master_epoch != found.master_epoch:
        words = f"The master epoch of {found.name} is {found.master_epoch}, not {asked.master_epoch}."
        raise _refusal("FENCED_MASTER_EPOCH", words)
    if wanted.sync_state_set_epoch != found.set_epoch:
        words = f"The set epoch of {found.name} is {found.set_epoch}, not {wanted.sync_state_set_epoch}."
        raise _refusal("FENCED_SYNC_STATE_SET_EPOCH", words)
    for member in members:
        _check_member(found, member, lives)
    if found.master not in members:
        words = f"The wanted set of {found.name} lacks its master {found.master}."
        raise _refusal("ALTER_SYNC_STATE_SET_FAILED", words)
    after = replace(found, members=members, set_epoch=found.set_epoch + 1, last_members=found.members)
    return SetChange("alter", found.name, found.revision, after)


def apply_id(found: ReplicaSet | None, asked: ApplyIdRequest) -> SetChange | None:
    """A new replica takes an id; None where it has it already."""
    address = asked.check_code.partition(";")[0]
    if max(map(len, (asked.cluster, asked.name, asked.check_code))) > _MAX_TEXT:
        raise _refusal("BROKER_ID_INVALID", f"A name or the check code has over {_MAX_TEXT} characters.")
    number, replica = asked.broker_id, Replica(address, asked.check_code)
    if found is None:
        if number != FIRST_ID:
            words = f"Broker {asked.name} is not known yet, and its first id is {FIRST_ID}, not {number}."
            raise _refusal("BROKER_ID_INVALID", words)
        after = ReplicaSet(asked.cluster, asked.name, {number: replica}, number + 1)
        return SetChange("apply-id", asked.name, 0, after)
    held = found.replicas.get(number)
    if held is not None and held.check_code == asked.check_code:
        return None
    # An id below the next one that nobody has was cleaned: whoever had it may come back with its old log.
    if number < found.next_id or len(found.replicas) >= MAX_SET_REPLICAS or number > found.next_id + MAX_SET_REPLICAS:
        words = f"Id {number} of broker {found.name} is given or out of range; the next one is {found.next_id}."
        raise _refusal("BROKER_ID_INVALID", words)
    after = replace(found, replicas={**found.replicas, number: replica}, next_id=number + 1)
    return SetChange("apply-id", found.name, found.revision, after)


def register_replica(found: ReplicaSet | None, asked: RegisterReplicaRequest) -> SetChange | None:
    """A replica tells its address and what it is; None where that is known."""
    held = None if found is None else found.replicas.get(asked.broker_id)
    if found is None or held is None:
        words = f"Broker {asked.name[:80]!r} has no replica {asked.broker_id}."
        raise _refusal("BROKER_NEEDS_TO_BE_REGISTERED", words)
    if len(asked.address) > _MAX_TEXT:
        raise _refusal("INVALID_CONTROLLER_REQUEST", f"An address has over {_MAX_TEXT} characters.")
    all_ack = {"true": True, "false": False}.get(asked.all_ack)
    replica = Replica(asked.address, held.check_code, asked.is_learner, all_ack)
    if replica == held:
        return None
    after = replace(found, replicas={**found.replicas, asked.broker_id: replica})
    if asked.is_learner:
        after = _leave_set(after, {asked.broker_id})
    return SetChange("register", found.name, found.revision, after)


def clean_replicas(found: ReplicaSet | None, asked: CleanBrokerRequest, lives: Lives) -> SetChange:
    """Replicas are to be forgotten: those that are named, or all."""
    ids = _ids_of(asked.ids)
    if not asked.includes_living:
        if not ids and found is not None and found.master is not None:
            words = f"Broker {found.name} has a master, so it is not cleaned."
            raise _refusal("INVALID_CLEAN_BROKER_METADATA", words)
        living = sorted(one for one in ids if lives(one))
        if living:
            words = f"Replica {living[0]} of broker {asked.name[:80]} lives, so it is not cleaned."
            raise _refusal("INVALID_CLEAN_BROKER_METADATA", words)
    if found is None:
        raise _refusal("INVALID_CLEAN_BROKER_METADATA", f"Broker {asked.name[:80]!r} is not known.")
    left = {number: replica for number, replica in found.replicas.items() if ids and number not in ids}
    if not left:
        return SetChange("clean", found.name, found.revision)
    after = replace(_leave_set(found, ids), replicas=left)
    return SetChange("clean", found.name, found.revision, after)


def _leave_set(found: ReplicaSet, ids: set[int]) -> ReplicaSet:
    """The set without these members, and without its master if that is one of them."""
    members = tuple(one for one in found.members if one not in ids)
    if members == found.members:
        return found
    after = replace(found, members=members, set_epoch=found.set_epoch + 1, last_members=found.members)
    if found.master not in ids:
        return after
    return replace(after, master=None, master_epoch=found.master_epoch + 1)


def _check_member(found: ReplicaSet, member: int, lives: Lives) -> None:
    replica = found.replicas.get(member)
    if replica is None or replica.is_learner:
        what = "is not known" if replica is None else "is a learner"
        raise _refusal("INVALID_REPLICAS", f"Replica {member} of {found.name} {what}.")
    if not lives(member):
        raise _refusal("BROKER_NOT_ALIVE", f"Replica {member} of {found.name} sends no heartbeats.")


def _ids_of(texts: Iterable[str]) -> set[int]:
    try:
        return {int(text) for text in texts}
    except ValueError as error:
        words = f"The ids to clean cannot be read: {error}."
        raise _refusal("INVALID_CLEAN_BROKER_METADATA", words, remedy="Write ids separated by ;, as in 1;2.") from None


def _refusal(name: str, words: str, *, remedy: str | None = None) -> NameRefused:
    return NameRefused(name, words, remedy=remedy)
