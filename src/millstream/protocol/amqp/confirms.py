"""Publisher confirms of one channel, combined into few frames. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Confirm", "Confirms"]


@dataclass(frozen=True, slots=True)
class Confirm:
    """What a peer is told: everything up to the tag, with `is_multiple`, or it alone, is stored or refused."""

    tag: int
    is_multiple: bool
    is_stored: bool


class Confirms:
    """Tags count the publications of a channel from its confirm.select on; 1 is the first."""

    __slots__ = ("_last", "_lowest", "_settled", "_told")

    def __init__(self) -> None:
        self._last = 0
        self._lowest = 1
        # Settled ones that the peer has not been told of, and those above the lowest that it has.
        self._settled: dict[int, bool] = {}
        self._told: set[int] = set()

    @property
    def outstanding(self) -> int:
        """Publications that the peer has not been told of."""
        return self._last - self._lowest + 1 - len(self._told)

    def next_tag(self) -> int:
        """The tag of the next publication."""
        self._last += 1
        return self._last

    def settle(self, tag: int, is_stored: bool) -> None:
        """A publication was stored or refused."""
        self._settled[tag] = is_stored

    def take(self) -> list[Confirm]:
        """What is to be told now: the lowest ones that are stored in one frame, all others each in its own."""
        settled, told, found = self._settled, self._told, []
        lowest, stored, last_stored = self._lowest, 0, 0
        while True:
            if lowest in told:
                told.remove(lowest)
            elif lowest in settled:
                if settled.pop(lowest):
                    stored, last_stored = stored + 1, lowest
                else:
                    found.append(Confirm(lowest, False, False))
            else:
                break
            lowest += 1
        self._lowest = lowest
        # Behind the refused ones below it: a peer takes them out of what it awaits first.
        if stored:
            found.append(Confirm(last_stored, stored > 1, True))
        found += [Confirm(tag, False, is_stored) for tag, is_stored in sorted(settled.items())]
        told.update(settled)
        settled.clear()
        return found
