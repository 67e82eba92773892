"""Authentication of AMQP users, and their permissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.model.errors import AccessRefused
from millstream.protocol.amqp.field_table import decode_table
from millstream.protocol.amqp.reply_codes import ConnectionFailure
from millstream.proxy.amqp.names import group_of_queue
from millstream.security.guard import Guard
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource

__all__ = ["AmqpAccess", "Login", "read_login"]

_ACTION: Final = "AMQP {}"


@dataclass(frozen=True, slots=True)
class Login:
    """What a client says that it is."""

    user: str
    secret: str


def read_login(mechanism: str, response: bytes) -> Login | None:
    """The login of a client; None for another mechanism or a response that is none.

    PLAIN (RFC 4616) is `authzid NUL user NUL secret`, AMQPLAIN a field table without its length: LOGIN and PASSWORD.
    """
    try:
        if mechanism == "PLAIN":
            _, user, secret = response.decode().split("\0")
            return Login(user, secret)
        if mechanism == "AMQPLAIN":
            table, _ = decode_table(len(response).to_bytes(4) + response)
            found, said = table["LOGIN"], table["PASSWORD"]
            return Login(found, said) if isinstance(found, str) and isinstance(said, str) else None
    except (ValueError, KeyError, ConnectionFailure):
        return None
    return None


class AmqpAccess:
    """Asks the access control; without a guard everybody may do everything."""

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard

    def admits(self, login: Login, peer: str) -> bool:
        """Whether the secret is the user's. Every refusal is audited."""
        if self._guard is None:
            return True
        try:
            self._guard.caller_of_secret(login.user, login.secret.encode(), peer=peer, action=_ACTION.format("login"))
        except AccessRefused:
            return False
        return True

    def check_topic(self, user: str, topic: str, action: Action, peer: str) -> None:
        """ACCESS_DENIED where the user may not do that to the topic."""
        if self._guard is not None:
            wish = (
                RequiredAccess.publish(topic)
                if action is Action.PUB
                else RequiredAccess(Resource.topic(topic), (action,))
            )
            self._guard.allow(user, (wish,), peer=peer, action=_ACTION.format(action.value))

    def check_queue(self, user: str, virtual_host: str, name: str, action: Action, peer: str) -> None:
        """ACCESS_DENIED where the user may not do that to the queue's group."""
        if self._guard is not None:
            wish = RequiredAccess(Resource.group(group_of_queue(virtual_host, name)), (action,))
            self._guard.allow(user, (wish,), peer=peer, action=_ACTION.format(action.value))

    def may_consume(self, user: str, virtual_host: str, name: str, peer: str) -> bool:
        """Whether a user may still consume a queue; nothing is audited."""
        if self._guard is None:
            return True
        wish = RequiredAccess(Resource.group(group_of_queue(virtual_host, name)), (Action.SUB,))
        return self._guard.may(user, wish, peer=peer)

    def is_gone(self, user: str) -> bool:
        """Whether a user who has logged in is there no more, or was disabled."""
        if self._guard is None:
            return False
        found = self._guard.book.find(user)
        return found is None or not found.enabled
