"""A stream frame that is expensive to encode: a thread encodes it when its turn to be written comes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from millstream.transport.heavy_work import HEAVY_WORK

__all__ = ["LateFrame"]


class LateFrame:
    """`make` makes the frame, bytes or a message, and is called in a thread; `size_bytes` is what it is about."""

    __slots__ = ("_make", "_size_bytes")

    def __init__(self, size_bytes: int, make: Callable[[], Any]) -> None:
        self._size_bytes = size_bytes
        self._make = make

    def then(self, change: Callable[[Any], object]) -> LateFrame:
        """The frame, changed by `change` where it is a message."""

        def make_changed() -> Any:
            made = self._make()
            if not isinstance(made, bytes):
                change(made)
            return made

        return LateFrame(self._size_bytes, make_changed)

    async def make(self, frames: Generator[Any, None, None]) -> Any:
        """The frame; where it cannot be made what the stream that it is of says to the error."""
        try:
            return await HEAVY_WORK.run(self._size_bytes, self._make)
        except Exception as error:  # noqa: BLE001 - the stream's edge turns every failure into its last frame
            return frames.throw(error)
