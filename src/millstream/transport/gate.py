"""The guard of a remoting port: verifies signatures and the permissions of each request code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from millstream.model.message import Address
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.guard import Guard
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource, ResourceKind
from millstream.security.signature import ACCESS_KEY

__all__ = ["Needs", "RemotingGate", "action_name", "allow_more", "everything", "nothing_more", "reader", "topic_field"]

_NAMES = {int(code): code.name for code in RequestCode}

Needs = Callable[[RemotingCommand], Iterable[RequiredAccess]]
"""What a request of one code needs; raises the refusal of a request that cannot be read."""


class RemotingGate:
    """Lets requests through that `guard` allows. A code without a row in `needs` is for super users."""

    def __init__(self, guard: Guard, needs: Mapping[int, Needs]) -> None:
        self._guard = guard
        self._needs = needs

    def check(self, command: RemotingCommand, peer: Address) -> None:
        """Return if the request may be answered; UNAUTHORIZED, ACCESS_DENIED, MESSAGE_MALFORMED."""
        action = action_name(command.code)
        caller = self._guard.caller_of_fields(
            command.ext, (command.body,), command.version, peer=peer.host, action=action
        )
        needs = self._needs.get(command.code)
        if needs is None:
            self._guard.require_super(caller, peer=peer.host, action=action)
        else:
            self._guard.allow(caller, needs(command), peer=peer.host, action=action)


def allow_more(guard: Guard | None, command: RemotingCommand, peer: Address, *wishes: RequiredAccess) -> None:
    """What a handler finds that a request needs beyond what it says itself; ACCESS_DENIED, UNAUTHORIZED."""
    if guard is not None:
        caller, action = command.ext.get(ACCESS_KEY, ""), action_name(command.code)
        guard.allow(caller, wishes, peer=peer.host, action=action)


def action_name(code: int) -> str:
    """The name of a request code, as the audit tells it."""
    return _NAMES.get(code) or f"request code {code}"


def nothing_more(_command: RemotingCommand) -> tuple[RequiredAccess, ...]:
    """Every user may."""
    return ()


def topic_field(field: str, *actions: Action) -> Needs:
    """One of the actions on the topic of that field."""
    return lambda command: (RequiredAccess(Resource.topic(command.ext.get(field, "")), actions),)


def everything(kind: ResourceKind, action: Action) -> Needs:
    """The action on all resources of the kind."""
    wishes = (RequiredAccess(Resource(kind, None), (action,)),)
    return lambda _command: wishes


def reader(*actions: Action) -> Needs:
    """One of the actions on the group and on the topic of the fields consumerGroup and topic."""
    return lambda command: (
        RequiredAccess(Resource.group(command.ext.get("consumerGroup", "")), actions),
        RequiredAccess(Resource.topic(command.ext.get("topic", "")), actions),
    )
