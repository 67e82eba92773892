"""What brokers say to a proxy on their own: questions and news, each for whoever here knows what it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["BrokerCallbacks", "Hear"]

Hear = Callable[[RemotingCommand], "Awaitable[RemotingCommand | None] | RemotingCommand | None"]
"""Answers one request of a broker; None answers nothing."""


class BrokerCallbacks:
    """Those who hear, by request code."""

    def __init__(self) -> None:
        self.by_code: dict[int, Hear] = {}

    def answer(self, command: RemotingCommand) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
        """The answer to give to the broker."""
        hear = self.by_code.get(command.code)
        if hear is None:
            return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="Not known to this proxy.")
        return hear(command)
