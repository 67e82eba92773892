"""Synchronizes a proxy's users and policies with its brokers.

Every `FOLLOW_INTERVAL_S` each master is asked which version of the rules it has; the highest one is taken where it is
not known yet. Brokers are told the same changes, so a lower number of changes means that a broker has missed some. A
lower one than known is therefore taken only if all masters answered: what was taken back stays taken back while
the broker that knows it is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from millstream.broker.access_file import read_rules
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.administration.access import RulesVersion, ask_rules, unpack_rules
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.users import AccessBook

__all__ = ["FIRST_RULES_S", "FOLLOW_INTERVAL_S", "AccessFollower", "to_take"]

_log = logging.getLogger(__name__)

FOLLOW_INTERVAL_S: Final = 2.0
"""Seconds between two polls: a change holds at a proxy after so long and the time of two answers."""

FIRST_RULES_S: Final = 10.0
"""Seconds that a start waits for the first rules at most."""

_OFF: Final = frozenset(("ACCESS_CONTROL_OFF", "REQUEST_NOT_SUPPORTED"))
"""What brokers without access control answer, and brokers that are not ours."""

AskBroker = Callable[[str, RemotingCommand], Awaitable[RemotingCommand]]


def to_take(known: RulesVersion | None, told: Mapping[str, RulesVersion], *, all_answered: bool) -> str | None:
    """The broker (by its address) whose rules are to be taken, None to keep what is known. Pure."""
    if not told:
        return None
    best = max(told, key=lambda address: (told[address], address))
    if told[best] == known:
        return None
    if known is not None and told[best].revision < known.revision and not all_answered:
        return None
    return best


class AccessFollower:
    """From `start` to `close`. `masters` gives name and address of each, `ask` the answer of the broker at an address.

    Where brokers have no access control, the users of `book` stay what they are.
    """

    def __init__(
        self, book: AccessBook, masters: Callable[[], Awaitable[list[tuple[str, str]]]], ask: AskBroker
    ) -> None:
        self._book = book
        self._masters = masters
        self._ask = ask
        self._known: RulesVersion | None = None
        self._failure = ""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; with the first rules, or without after `FIRST_RULES_S`: then unknown users are told to wait."""
        self._book.awaits_rules = True
        first = asyncio.Event()
        self._task = asyncio.create_task(self._keep_following(first), name="proxy-access")
        try:
            await asyncio.wait_for(first.wait(), FIRST_RULES_S)
        except TimeoutError:
            _log.warning("No broker has told its users so far: %s", self._failure or "none is there")

    async def close(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def follow(self) -> None:
        """One turn: ask all masters, and take the rules that are to be taken. Raises what kept all from answering."""
        masters = [address for _, address in await self._masters()]
        answers = await asyncio.gather(*(self._version_of(address) for address in masters), return_exceptions=True)
        versions: dict[str, RulesVersion] = {}
        failures: list[MillstreamError] = []
        for address, answer in zip(masters, answers, strict=True):
            if isinstance(answer, RulesVersion):
                versions[address] = answer
            elif not isinstance(answer, MillstreamError):
                raise answer
            else:
                failures.append(answer)
        best = to_take(self._known, versions, all_answered=not failures)
        if best is not None:
            await self._take(best)
        elif masters and not versions and all(failure.name in _OFF for failure in failures):
            self._book.awaits_rules = False
        elif failures and not versions:
            raise failures[0]

    async def _version_of(self, address: str) -> RulesVersion:
        return RulesVersion.of((await self._ask(address, ask_rules(whole=False))).ext)

    async def _take(self, address: str) -> None:
        answer = await self._ask(address, ask_rules(whole=True))
        version = RulesVersion.of(answer.ext)
        users, entries = read_rules(unpack_rules(answer.body))
        self._book.follow(users, entries, version.revision)
        self._known = version

    async def _keep_following(self, first: asyncio.Event) -> None:
        while True:
            try:
                await self.follow()
            except MillstreamError as error:
                self._note_failure(str(error))
            except Exception:  # noqa: BLE001 - a task of the proxy's whole life must outlive one bad turn
                _log.exception("the users could not be asked for; the next turn follows")
            else:
                self._failure = ""
            if not self._book.awaits_rules:
                first.set()
            await asyncio.sleep(FOLLOW_INTERVAL_S)

    def _note_failure(self, said: str) -> None:
        if not self._failure:
            _log.warning("The users of the brokers are not told; what is known holds until they are: %s", said)
        self._failure = said
