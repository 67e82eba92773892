"""Rate limits for clients, by rules. Pure: monotonic seconds are passed in.

A rule names clients by patterns of their id, their group and their user (`*` and `?` as in file names), and holds for
each client that fits on its own. All rules that fit a call must let it through. A rule keeps the calls and the bytes of
one second ready; a call that is larger than what is left goes through and is paid for by waiting longer.

As text: `client=mobile-* group=* user=* calls=100 bytes=1000000`; what is left out fits all, or is not bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from millstream.model.errors import AccessRefused, StartRefused

__all__ = ["MAX_BUCKETS", "Caller", "Throttle", "ThrottleRule", "parse_throttle_rule"]

MAX_BUCKETS: Final = 100_000
"""Clients and rules that are counted at most; the one that was silent for longest is forgotten and starts again."""

_PATTERNS: Final = ("client", "group", "user")
_RATES: Final = ("calls", "bytes")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: client id, group (blank for producers) and user (blank without access control)."""

    client: str
    group: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class ThrottleRule:
    """Whom it is for, and calls and bytes in a second; None where it does not bound them."""

    client: str = "*"
    group: str = "*"
    user: str = "*"
    calls: float | None = None
    bytes: float | None = None

    def fits(self, caller: Caller) -> bool:
        """Whether it is for this caller."""
        return (
            fnmatchcase(caller.client, self.client)
            and fnmatchcase(caller.group, self.group)
            and fnmatchcase(caller.user, self.user)
        )


def parse_throttle_rule(text: str) -> ThrottleRule:
    """The rule of a text. Raises ILLEGAL_SETTING."""
    told: dict[str, str] = {}
    for word in text.split():
        name, mark, value = word.partition("=")
        if not mark or name not in (*_PATTERNS, *_RATES) or name in told:
            raise _illegal(text)
        told[name] = value
    rates = {name: int(told[name]) for name in _RATES if told.get(name, "").isdecimal() and int(told[name])}
    if not rates or any(name in told and name not in rates for name in _RATES):
        raise _illegal(text)
    patterns = {name: told[name] for name in _PATTERNS if name in told}
    return ThrottleRule(**patterns, calls=rates.get("calls"), bytes=rates.get("bytes"))


def _illegal(text: str) -> StartRefused:
    words = f"throttle: {text[:200]!r} is no rule like client=mobile-* calls=100 bytes=1000000."
    return StartRefused("ILLEGAL_SETTING", words)


@dataclass(slots=True)
class _Bucket:
    """What is left, and when that was known."""

    calls: float
    bytes: float
    at_s: float


class Throttle:
    """Counts the calls of all clients against the rules."""

    def __init__(self, rules: Sequence[ThrottleRule] = ()) -> None:
        self._rules = tuple(rules)
        self._buckets: dict[tuple[int, Caller], _Bucket] = {}

    @property
    def has_rules(self) -> bool:
        """Whether there is anything to count."""
        return bool(self._rules)

    def admit(self, caller: Caller, size_bytes: int, now_s: float) -> None:
        """Count a call with so many bytes; CLIENT_THROTTLED, and nothing is counted, where a rule lets none through."""
        fitting = [(rule, self._bucket(number, rule, caller, now_s)) for number, rule in self._fitting(caller)]
        for rule, bucket in fitting:
            is_late = rule.calls is not None and bucket.calls < 1
            if is_late or (rule.bytes is not None and bucket.bytes <= 0):
                noun, rate = ("calls", rule.calls) if is_late else ("bytes", rule.bytes)
                raise AccessRefused(
                    "CLIENT_THROTTLED",
                    f"The client {caller.client[:200]!r} may have {rate:,.0f} {noun} a second at this proxy.",
                )
        for _, bucket in fitting:
            bucket.calls -= 1
            bucket.bytes -= size_bytes

    def charge(self, caller: Caller, size_bytes: int, now_s: float) -> None:
        """Count bytes of a call that was let through before."""
        for number, rule in self._fitting(caller):
            self._bucket(number, rule, caller, now_s).bytes -= size_bytes

    def _fitting(self, caller: Caller) -> list[tuple[int, ThrottleRule]]:
        return [(number, rule) for number, rule in enumerate(self._rules) if rule.fits(caller)]

    def _bucket(self, number: int, rule: ThrottleRule, caller: Caller, now_s: float) -> _Bucket:
        """The bucket, filled up to now; it is the last in order of use."""
        calls, size = max(rule.calls or 0.0, 1.0), rule.bytes or 0.0
        bucket = self._buckets.pop((number, caller), None)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                del self._buckets[next(iter(self._buckets))]
            bucket = _Bucket(calls, size, now_s)
        passed_s = max(now_s - bucket.at_s, 0.0)
        bucket.calls = min(bucket.calls + passed_s * (rule.calls or 0.0), calls)
        bucket.bytes = min(bucket.bytes + passed_s * size, size)
        bucket.at_s = now_s
        self._buckets[number, caller] = bucket
        return bucket
