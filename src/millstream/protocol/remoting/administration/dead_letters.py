"""Bodies of our own requests about dead letters: list and redrive."""

from __future__ import annotations

import msgspec

from millstream.model.operations import DeadLetter, DeadLetterPage, DeadLetterQuery, Redriven, RedriveResult
from millstream.protocol.remoting.bodies import CamelBody, decode_body, encode_body

__all__ = [
    "decode_dead_letter_page",
    "decode_dead_letter_query",
    "decode_redrive_result",
    "encode_dead_letter_page",
    "encode_dead_letter_query",
    "encode_redrive_result",
]


class _Query(CamelBody):
    group: str
    offset: int = 0
    max_letters: int = 100
    message_ids: list[str] = msgspec.field(default_factory=list)
    since_ms: int = 0
    until_ms: int = 1 << 62
    only_waiting: bool = False
    target: str | None = None


class _Page(CamelBody):
    letters: list[DeadLetter]
    next_offset: int
    end_offset: int


class _Result(CamelBody):
    results: list[Redriven]
    next_offset: int
    end_offset: int


def encode_dead_letter_query(query: DeadLetterQuery, target: str | None = None) -> bytes:
    """The body that asks for dead letters, or with a code of its own to send them again (to `target`)."""
    ids = sorted(query.message_ids)
    return encode_body(
        _Query(
            query.group,
            query.offset,
            query.max_letters,
            ids,
            query.since_ms,
            query.until_ms,
            query.only_waiting,
            target,
        )
    )


def decode_dead_letter_query(body: bytes) -> tuple[DeadLetterQuery, str | None]:
    """Query and target of such a body; MESSAGE_MALFORMED where it cannot be read."""
    decoded = decode_body(_Query, body)
    query = DeadLetterQuery(
        decoded.group,
        decoded.offset,
        decoded.max_letters,
        frozenset(decoded.message_ids),
        decoded.since_ms,
        decoded.until_ms,
        decoded.only_waiting,
    )
    return query, decoded.target or None


def encode_dead_letter_page(page: DeadLetterPage) -> bytes:
    """The body that tells dead letters."""
    return encode_body(_Page(list(page.letters), page.next_offset, page.end_offset))


def decode_dead_letter_page(body: bytes) -> DeadLetterPage:
    """The page of such a body; MESSAGE_MALFORMED where it cannot be read."""
    page = decode_body(_Page, body)
    return DeadLetterPage(tuple(page.letters), page.next_offset, page.end_offset)


def encode_redrive_result(result: RedriveResult) -> bytes:
    """The body that tells what became of dead letters."""
    return encode_body(_Result(list(result.results), result.next_offset, result.end_offset))


def decode_redrive_result(body: bytes) -> RedriveResult:
    """The result of such a body; MESSAGE_MALFORMED where it cannot be read."""
    result = decode_body(_Result, body)
    return RedriveResult(tuple(result.results), result.next_offset, result.end_offset)
