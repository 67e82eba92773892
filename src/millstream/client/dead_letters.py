"""What the client asks about dead letters: pages of them, and sending them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from millstream.client.operations import ClientOperation, ClientOperations
from millstream.model.operations import DeadLetterPage, DeadLetterQuery, RedriveResult
from millstream.protocol.remoting.administration.dead_letters import (
    decode_dead_letter_page,
    decode_redrive_result,
    encode_dead_letter_query,
)
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["MAX_LETTERS_PER_REQUEST", "DeadLetterOperations"]

MAX_LETTERS_PER_REQUEST = 100
"""Dead letters that one request sends again at most, whatever it asks for."""

_T = TypeVar("_T")


class DeadLetterOperations:
    """The operations, each with one broker; `brokers` says which there are."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations

    def brokers(self) -> ClientOperation[list[str]]:
        """The addresses of the masters, each of which has dead letters of its own."""
        return (yield from self._conversations.masters())

    def page(self, address: str, query: DeadLetterQuery) -> ClientOperation[DeadLetterPage]:
        """Dead letters from an offset on."""
        body = encode_dead_letter_query(query)
        return (yield from self._ask(address, RequestCode.LIST_DEAD_LETTERS, body, decode_dead_letter_page))

    def redrive(self, address: str, query: DeadLetterQuery, target: str | None) -> ClientOperation[RedriveResult]:
        """Send some again, to where they come from or to `target`; the result says where to go on."""
        limited = replace(query, max_letters=min(query.max_letters, MAX_LETTERS_PER_REQUEST))
        body = encode_dead_letter_query(limited, target)
        return (yield from self._ask(address, RequestCode.REDRIVE_DEAD_LETTERS, body, decode_redrive_result))

    def _ask(self, address: str, code: RequestCode, body: bytes, decode: Callable[[bytes], _T]) -> ClientOperation[_T]:
        answer = yield from self._conversations.ask(address, RemotingCommand(code, body=body))
        return decode(answer.body)
