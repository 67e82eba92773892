"""What an input has done so far."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["InputStatistics"]


@dataclass(slots=True)
class InputStatistics:
    """Plain counts of one input; `peers` and `unread_bytes` are as of now, the others only grow."""

    taken: int = 0
    """Events that were taken in."""
    taken_bytes: int = 0
    stored: int = 0
    """Events that the broker acknowledged."""
    refused: int = 0
    """Events that the broker took as no message, such as one that is too large with its properties."""
    cut: int = 0
    """Events that were over the limit and were cut to it."""
    dead: int = 0
    """Events that went to the dead-letter topic."""
    malformed: int = 0
    """Events that are not of the form that was expected; they are sent as they came, or refused by HTTP."""
    dropped: int = 0
    """Events that were given up, because too many bytes waited or the input was told to."""
    kernel_drops: int = 0
    """Datagrams that the kernel threw away before they were read."""
    turned_away: int = 0
    """Posts that were answered 401, 413 or 429."""
    broken: int = 0
    """Connections that ended in the middle of something."""
    unreadable: int = 0
    """Files that could not be read, or not to their end."""
    retries: int = 0
    """Batches that were sent again."""
    peers: int = 0
    unread_bytes: int = 0

    @property
    def has_losses(self) -> bool:
        """Whether there was something that did not come to the topic and will not."""
        return bool(self.refused or self.dropped or self.kernel_drops or self.unreadable)

    def sentence(self) -> str:
        """The counts that are not zero, in words."""
        words = {
            "refused": "refused",
            "cut": "cut",
            "dead": "to the dead letters",
            "malformed": "malformed",
            "dropped": "dropped",
            "kernel_drops": "dropped by the kernel",
            "turned_away": "posts turned away",
            "broken": "connections broken off",
            "unreadable": "files not read to their end",
            "retries": "batches sent again",
        }
        said = [f"{getattr(self, name):,} {word}" for name, word in words.items() if getattr(self, name)]
        return ", ".join([f"{self.taken:,} events taken", f"{self.stored:,} stored", *said])
