"""Which broker cluster a topic lies in, where a proxy stands before several: by rules over the topics' names. Pure.

As text: `billing-*=10.0.0.7:9876;10.0.0.8:9876`. The first rule whose pattern (`*` and `?` as in file names) fits
counts; topics that none fits lie in the proxy's own cluster. So do groups' retry and dead-letter topics, unless a rule
says otherwise (`%DLQ%billing*=...`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from millstream.client.operations import parse_addresses
from millstream.model.errors import StartRefused

__all__ = ["ClusterRule", "Clusters", "parse_cluster_rule"]


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """Topics by a pattern, and the nameservers (`host:port`, separated by `;`) that know them."""

    topics: str
    nameservers: str


def parse_cluster_rule(text: str) -> ClusterRule:
    """The rule of a text. Raises ILLEGAL_SETTING."""
    topics, mark, nameservers = text.partition("=")
    try:
        if not mark or not topics.strip():
            raise ValueError("there is no pattern")
        return ClusterRule(topics.strip(), ";".join(parse_addresses(nameservers)))
    except ValueError as error:
        words = f"clusters: {text[:200]!r} is not of the form topic-pattern=host:port;host:port: {error}."
        raise StartRefused("ILLEGAL_SETTING", words) from None


class Clusters:
    """The clusters of one proxy, by their nameservers; `own` are those of the proxy's own cluster."""

    def __init__(self, own: str, rules: Sequence[ClusterRule] = ()) -> None:
        self._own = own
        self._rules = tuple(rules)

    def of(self, topic: str) -> str:
        """The nameservers that know the topic."""
        return next((rule.nameservers for rule in self._rules if fnmatchcase(topic, rule.topics)), self._own)

    def all(self) -> list[str]:
        """The nameservers of each cluster, the own ones first."""
        return list(dict.fromkeys((self._own, *(rule.nameservers for rule in self._rules))))
