"""One step of a conversation with nameservers and brokers."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["ClientOperation", "RequestStep"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RequestStep:
    """Send `command` to `address` (`host:port`) and wait for the answer, `extra_wait_s` longer than usual.

    `delay_s` is to pass before it is sent.
    """

    address: str
    command: RemotingCommand
    extra_wait_s: float = 0.0
    delay_s: float = 0.0


ClientOperation = Generator[RequestStep, RemotingCommand, _T]
