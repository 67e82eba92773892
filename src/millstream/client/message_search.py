"""Finding a message by whatever names it: its id, its offset message id or a key, in one topic or in all."""

from __future__ import annotations

import re
from typing import Final

from millstream.client.conversations import Conversation, Conversations
from millstream.model.errors import NameRefused, Refused
from millstream.model.message import StoredMessage
from millstream.model.topic import is_system_topic
from millstream.protocol.record import decode_record, offset_message_id
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["MAX_SEARCHED_TOPICS", "MessageSearch"]

MAX_SEARCHED_TOPICS: Final = 1000
"""Topics that are searched at most where none is named: each one is a request to each of its brokers."""

_OFFSET_ID = re.compile(r"(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{32})[0-9A-Fa-f]{8}([0-9A-Fa-f]{16})")
"""Address (IPv4 or IPv6), port and log offset. An id of a producer's library may look the same."""


class MessageSearch:
    """The search, over the brokers that `conversations` finds."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    def find(self, name: str, topic: str | None = None, *, max_results: int = 32) -> Conversation[list[StoredMessage]]:
        """The messages of that id, offset id or key, newest first.

        Raises TOPIC_NOT_FOUND; SEARCH_TOO_WIDE where no topic is named and there are too many.
        """
        found = yield from self._at(name)
        if found is not None and topic in (None, found.topic):
            return [found]
        topics = [topic] if topic is not None else (yield from self._topics())
        messages: list[StoredMessage] = []
        for one in topics:
            search = self._conversations.find_by_key(one, name, begin_ms=0, end_ms=2**62, max_results=max_results)
            try:
                messages += yield from search
            except NameRefused as error:
                if topic is not None or error.name != "TOPIC_NOT_FOUND":
                    raise
        return sorted(messages, key=lambda message: message.store_timestamp_ms, reverse=True)[:max_results]

    def _at(self, offset_id: str) -> Conversation[StoredMessage | None]:
        """The message whose place the id says; None where it is no such id, or of none of the brokers."""
        match = _OFFSET_ID.fullmatch(offset_id)
        log_offset = int(match[1], 16) if match else 1 << 63
        if log_offset >= 1 << 63:
            return None
        for address in (yield from self._conversations.masters()):
            command = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset)})
            try:
                message = decode_record((yield from self._conversations.ask(address, command)).body)
            except Refused:
                continue  # Another broker's, no offset id at all, or a user who may not ask so: keys are left to try.
            if offset_message_id(message.store_host, message.log_offset) == offset_id.upper():
                return message
        return None

    def _topics(self) -> Conversation[list[str]]:
        topics = yield from self._conversations.topics()
        names = [topic.name for topic in topics if not is_system_topic(topic.name)]
        if len(names) > MAX_SEARCHED_TOPICS:
            words = f"There are {len(names):,} topics; {MAX_SEARCHED_TOPICS:,} are searched at most."
            raise NameRefused("SEARCH_TOO_WIDE", words)
        return names
