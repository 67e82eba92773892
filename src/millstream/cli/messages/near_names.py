"""Advice for an unknown topic or group: suggests the closest existing name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.topic import is_system_topic

if TYPE_CHECKING:
    from millstream.cli.options import CommonOptions

__all__ = ["cluster", "near_names"]

_QUOTED = re.compile(r"'([^']+)'")
"""The name in the words of our servers; others' have none in quotes, and keep the remedy of the catalogue."""

_KINDS = {"TOPIC_NOT_FOUND": "topic", "GROUP_NOT_FOUND": "group"}


@contextmanager
def cluster(common: CommonOptions, *, group: str = "millstream-cli") -> Iterator[BlockingClient]:
    """A client of the cluster that the options name, within `near_names`."""
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s, group=group) as client, near_names(client):
        yield client


@contextmanager
def near_names(client: BlockingClient) -> Iterator[None]:
    """Within it a topic or group that is not there is refused with the names that are near."""
    try:
        yield
    except NameRefused as refused:
        remedy = _remedy(refused, client)
        if remedy is None:
            raise
        raise NameRefused(refused.name, refused.message, remedy=remedy) from None


def _remedy(refused: NameRefused, client: BlockingClient) -> str | None:
    kind, quoted = _KINDS.get(refused.name), _QUOTED.search(refused.message)
    if kind is None or quoted is None:
        return None
    create = f"millstream {kind} create {quoted[1]}"
    near = _nearest(quoted[1], _names(kind, client))
    return f"Create it: {create}." if near is None else f'Did you mean "{near}"? Else create it: {create}.'


def _nearest(name: str, known: list[str]) -> str | None:
    """The known name that is most like it, where capital letters make no difference."""
    by_lower = {one.lower(): one for one in sorted(known)}
    near = get_close_matches(name.lower(), by_lower, 1)
    return by_lower[near[0]] if near else None


def _names(kind: str, client: BlockingClient) -> list[str]:
    """The names that there are; none where the user may not list them."""
    try:
        if kind == "group":
            return [group.name for group in client.groups()]
        topics = client.topics()
    except MillstreamError:
        return []
    return [topic.name for topic in topics if not topic.is_template and not is_system_topic(topic.name)]
