"""A proxy's users: which broker's rules it takes, and what it tells clients while it knows none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access_samples import ANN, ROOT, sample_guard
from millstream.broker.access_file import open_access_book
from millstream.broker.remoting.access import access_handlers
from millstream.model.clock import SystemClock
from millstream.model.errors import AccessRefused, ConnectionFailed, Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.administration.access import RulesVersion
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.remote.access import AccessFollower, to_take
from millstream.proxy.remote.connection_pool import check_success
from millstream.security.guard import AuditLog, Guard
from millstream.security.policy import PolicyEntry, RequiredAccess
from millstream.security.signature import Credentials, signed_fields
from patience import within_patience

VERSIONS = st.builds(RulesVersion, st.integers(0, 4), st.sampled_from(["a", "b"]))


class Line:
    """Whoever asks, as a handler sees it."""

    peer = Address("192.0.2.7", 1)


class Brokers:
    """Brokers by address, each with a guard of its own, None for one without access control; some are away."""

    def __init__(self) -> None:
        self.guards: dict[str, Guard | None] = {}
        self.away: set[str] = set()
        self.wholes = 0

    async def masters(self) -> list[tuple[str, str]]:
        return [(address, address) for address in self.guards]

    async def ask(self, address: str, command: RemotingCommand) -> RemotingCommand:
        if address in self.away:
            raise Unreachable(f"{address} is away.")
        self.wholes += command.ext["whole"] == "true"
        answer: Callable[..., RemotingCommand] = access_handlers(self.guards[address])[command.code]  # type: ignore[assignment]
        return check_success(answer(command, Line()), address)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    """The proxy's own, which knows nobody."""
    clock = SystemClock()
    return Guard(open_access_book(tmp_path / "proxy"), AuditLog(clock), clock=clock)


def follower(guard: Guard, brokers: Brokers) -> AccessFollower:
    return AccessFollower(guard.book, brokers.masters, brokers.ask)


def check(guard: Guard, who: Credentials, topic: str) -> None:
    """What the guard of a port does to a send."""
    ext = signed_fields(who, {"topic": topic}, (b"body",), version=453)
    name = guard.caller_of_fields(ext, (b"body",), 453, peer="192.0.2.7", action="send")
    guard.allow(name, [RequiredAccess.publish(topic)], peer="192.0.2.7", action="send")


@given(st.none() | VERSIONS, st.dictionaries(st.sampled_from("xyz"), VERSIONS), st.booleans())
def test_what_is_taken_is_the_highest_and_never_a_lower_one_while_a_broker_is_away(
    known: RulesVersion | None, told: dict[str, RulesVersion], all_answered: bool
) -> None:
    taken = to_take(known, told, all_answered=all_answered)
    if taken is not None:
        assert told[taken] == max(told.values()) != known
        assert all_answered or known is None or told[taken].revision >= known.revision
    else:
        assert (
            not told
            or known == max(told.values())
            or (known is not None and not all_answered and max(told.values()).revision < known.revision)
        )


async def test_a_change_at_the_broker_holds_at_the_proxy_after_one_turn(
    guard: Guard, brokers: Brokers, tmp_path: Path
) -> None:
    brokers.guards["a"] = there = sample_guard(tmp_path / "a")
    following = follower(guard, brokers)
    await following.follow()
    check(guard, ANN, "orders")
    there.book.delete_entries("ann")
    await following.follow()
    with pytest.raises(AccessRefused) as refused:
        check(guard, ANN, "orders")
    assert refused.value.name == "ACCESS_DENIED"
    there.book.delete_user("ann")
    await following.follow()
    with pytest.raises(AccessRefused) as refused:
        check(guard, ANN, "orders")
    assert refused.value.name == "UNAUTHORIZED"


async def test_rules_that_did_not_change_are_told_once(guard: Guard, brokers: Brokers, tmp_path: Path) -> None:
    brokers.guards = {name: sample_guard(tmp_path / name) for name in "ab"}
    following = follower(guard, brokers)
    for _ in range(3):
        await following.follow()
    assert brokers.wholes == 1


async def test_what_was_taken_back_stays_so_while_the_broker_that_knows_it_is_away(
    guard: Guard, brokers: Brokers, tmp_path: Path
) -> None:
    brokers.guards = {name: sample_guard(tmp_path / name) for name in "ab"}
    knowing = brokers.guards["a"]
    assert knowing is not None
    knowing.book.delete_entries("ann")
    following = follower(guard, brokers)
    await following.follow()
    brokers.away.add("a")
    await following.follow()
    with pytest.raises(AccessRefused):
        check(guard, ANN, "orders")
    del brokers.guards["a"]
    await following.follow()
    check(guard, ANN, "orders")


async def test_a_broker_that_was_set_up_anew_is_followed_though_its_count_is_lower(
    guard: Guard, brokers: Brokers, tmp_path: Path
) -> None:
    brokers.guards["a"] = busy = sample_guard(tmp_path / "a")
    for topic in ("x", "y", "z"):
        busy.book.put_entries("ann", [PolicyEntry.read(f"Topic:{topic}", ["Pub"], [], "Allow")])
    following = follower(guard, brokers)
    await following.follow()
    check(guard, ANN, "x")
    brokers.guards["a"] = sample_guard(tmp_path / "a-again")
    await following.follow()
    with pytest.raises(AccessRefused):
        check(guard, ANN, "x")


async def test_while_no_broker_has_told_its_users_clients_are_told_to_wait(guard: Guard, brokers: Brokers) -> None:
    brokers.guards["a"] = None
    brokers.away.add("a")
    guard.book.awaits_rules = True
    with pytest.raises(ConnectionFailed):
        await follower(guard, brokers).follow()
    with pytest.raises(AccessRefused) as refused:
        check(guard, ANN, "orders")
    assert refused.value.name == "USERS_NOT_KNOWN_YET"


async def test_before_brokers_without_access_control_the_proxys_own_users_count(
    brokers: Brokers, tmp_path: Path
) -> None:
    guard = sample_guard(tmp_path / "proxy")
    brokers.guards = {"a": None, "b": None}
    following = follower(guard, brokers)
    await within_patience(following.start())
    await following.close()
    check(guard, ANN, "orders")
    with pytest.raises(AccessRefused) as refused:
        check(guard, Credentials("eve", "secret"), "orders")
    assert refused.value.name == "UNAUTHORIZED"


async def test_a_start_returns_with_the_first_rules(guard: Guard, brokers: Brokers, tmp_path: Path) -> None:
    brokers.guards["a"] = sample_guard(tmp_path / "a")
    following = follower(guard, brokers)
    await following.start()
    check(guard, ROOT, "anything")
    await following.close()


def test_how_many_changes_there_were_survives_a_restart(tmp_path: Path) -> None:
    before = sample_guard(tmp_path).book.revision
    assert before > 0
    assert open_access_book(tmp_path).revision == before
