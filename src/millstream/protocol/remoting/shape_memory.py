"""The shapes of one connection's requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand, decode_json
from millstream.protocol.remoting.pull_shape import learn_pull
from millstream.protocol.remoting.request_shape import RequestShape
from millstream.protocol.remoting.send_shape import learn_send

__all__ = ["MAX_SHAPES", "SHAPE_PATIENCE", "ShapeMemory"]

MAX_SHAPES: Final = 8
"""Shapes that are kept of one connection at most, as of a producer that sends to four topics, with a key or without."""

SHAPE_PATIENCE: Final = 256
"""Sends and pulls in a row that fit no shape before all of the connection are forgotten and others learned."""

_IS_COMPILED: Final = not __file__.endswith(".py")

_LEARNERS: Final[dict[int, Callable[[bytes, RemotingCommand], RequestShape | None]]] = {
    int(RequestCode.SEND_MESSAGE_V2): learn_send,
    int(RequestCode.PULL_MESSAGE): learn_pull,
}


class ShapeMemory:
    """The shapes of one connection. `last` is the one that the last request fitted.

    `learns` where they save time: byte by byte in plain Python costs more than the general way.
    """

    __slots__ = ("_learns", "_misses", "_shapes", "last")

    def __init__(self, *, learns: bool = _IS_COMPILED) -> None:
        self.last: RequestShape | None = None
        self._learns = learns
        self._shapes: list[RequestShape] = []
        self._misses = 0

    def read(self, data: bytes, start: int, body_start: int, end: int) -> Any:
        """What the request says whose JSON header stands in `data` from `start` to `body_start`, and its body up to
        `end`, if it fits a shape, which is `last` then; None where `decode` has to read it."""
        last = self.last
        if last is None:
            return None
        request = last.read(data, start, body_start, end)
        if request is None:
            for shape in self._shapes:
                if shape is not last:
                    request = shape.read(data, start, body_start, end)
                    if request is not None:
                        self.last = shape
                        break
        if request is not None:
            self._misses = 0
        return request

    def decode(self, data: bytes, start: int, body_start: int, end: int) -> RemotingCommand:
        """The command whose JSON header stands there, read in the general way; the next one may be like it.

        PROTOCOL_VIOLATION where it cannot be read.
        """
        header = data[start:body_start]
        command = decode_json(header, data[body_start:end])
        if self._learns and not command.flag:
            learner = _LEARNERS.get(command.code)
            if learner is not None:
                self._note_miss(learner, header, command)
        return command

    def _note_miss(
        self, learner: Callable[[bytes, RemotingCommand], RequestShape | None], header: bytes, command: RemotingCommand
    ) -> None:
        self._misses += 1
        if self._misses > SHAPE_PATIENCE:
            self._shapes.clear()
            self._misses = 0
        if len(self._shapes) < MAX_SHAPES:
            learned = learner(header, command)
            if learned is not None:
                self._shapes.append(learned)
                self.last = learned
