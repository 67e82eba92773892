"""The tree of user-visible errors. Each class is one row of the error catalogue.

    MillstreamError
    ├── Refused              the server understood and said no            exit 1
    │   ├── NameRefused      topics, queues, groups
    │   ├── AccessRefused    who asks, and what they may do
    │   ├── MessageRefused   bodies, properties, types, filters
    │   └── ConsumeRefused   receipt handles, invisible times, limits
    ├── ExtraMissing         packages that a feature needs               exit 1
    ├── StartRefused         ports, directories, configuration            exit 1
    ├── StoreError           the log                                      exit 1
    ├── ConnectionFailed     unreachable (exit 3), timed out (exit 4), protocol
    └── (streams)            `millstream.streams.errors` adds job and SQL errors

A message says what happened with the values; `remedy` what to do. Nothing here prints a stack trace.
"""

from __future__ import annotations

from millstream.model.catalogue import CATALOGUE, ErrorEntry

__all__ = [
    "AccessRefused",
    "ConnectionFailed",
    "ConsumeRefused",
    "ExtraMissing",
    "MessageRefused",
    "MillstreamError",
    "NameRefused",
    "NotConnected",
    "Refused",
    "StartRefused",
    "StoreError",
    "TimedOut",
    "Unreachable",
]


class MillstreamError(Exception):
    """An error that a user may see: a catalogue name, a sentence with the values, and a remedy.

    `name` must be in the catalogue. `remedy` replaces the catalogue's one where a better one is known; "" leaves it
    out, where the sentence has it already.
    """

    exit_code = 1

    def __init__(self, name: str, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.entry: ErrorEntry = CATALOGUE[name]
        self.message = message
        self.remedy = self.entry.remedy if remedy is None else remedy

    @property
    def name(self) -> str:
        """The catalogue name, as in `TOPIC_NOT_FOUND`."""
        return self.entry.name

    @property
    def label(self) -> str:
        """The number as users search it, as in `MS-2101`."""
        return f"MS-{self.entry.number}"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.message, self.remedy, f"[{self.label}]")))


class Refused(MillstreamError):
    """The request was understood and refused; nothing was changed."""


class NameRefused(Refused):
    """A topic, queue or group that is missing, illegal or not permitted."""


class AccessRefused(Refused):
    """A caller that is not known, lacks a permission, or names users and policies that are not there or not legal."""


class MessageRefused(Refused):
    """A message, property or filter that is not accepted."""


class ConsumeRefused(Refused):
    """A receipt handle, invisible time, offset or limit that is not accepted."""


class ExtraMissing(MillstreamError, ImportError):  # type: ignore[misc]  # ImportError has a `name` of its own
    """A package that `feature` needs is not installed; `extra` brings it."""

    def __init__(self, feature: str, package: str | None, *, extra: str) -> None:
        super().__init__(
            "EXTRA_MISSING",
            f"{feature} needs the package {package}.",
            remedy=f'Install it: pip install "millstream[{extra}]".',
        )


class StartRefused(MillstreamError):
    """The process cannot start as configured."""


class StoreError(MillstreamError):
    """The log cannot be written or read."""


class ConnectionFailed(MillstreamError):
    """A peer broke the protocol or answered with an error of its own."""

    exit_code = 3


class Unreachable(ConnectionFailed):
    """Nothing answers at the address."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__("UNREACHABLE", message, remedy=remedy)


class NotConnected(Unreachable):
    """No connection was open, and none could be opened: nothing was sent, so nothing happened."""


class TimedOut(ConnectionFailed):
    """The answer did not come in time; whether the request took effect is unknown."""

    exit_code = 4

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__("TIMED_OUT", message, remedy=remedy)
