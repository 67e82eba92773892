"""`millstream acl` against a server that was started with --secure."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Ran, run

from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


Millstream = Callable[..., Ran]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secure") / "data"


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[ServerProcess]:
    with ServerProcess(directory, options=["--secure"]) as process:
        yield process


@pytest.fixture
def as_user(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Millstream]:
    """Runs commands signed by a user."""

    def signed(name: str, secret: str) -> Millstream:
        def command(*arguments: str) -> Ran:
            monkeypatch.setenv("MILLSTREAM_ACCESS_KEY", name)
            monkeypatch.setenv("MILLSTREAM_SECRET_KEY", secret)
            return run(*arguments, "--nameserver", server.addresses.nameserver)

        return command

    return signed


@pytest.fixture
def admin(directory: Path, as_user: Callable[[str, str], Millstream]) -> Millstream:
    written = (directory / "credentials").read_text().splitlines()
    found = dict(line.split("=", 1) for line in written if not line.startswith("#"))
    return as_user(found["MILLSTREAM_ACCESS_KEY"], found["MILLSTREAM_SECRET_KEY"])


def test_the_keys_are_for_the_owner_alone(server: ServerProcess, directory: Path) -> None:
    assert stat.S_IMODE(os.stat(directory / "credentials").st_mode) == 0o600


def test_a_user_is_made_granted_used_and_deleted(
    admin: Millstream, as_user: Callable[[str, str], Millstream], directory: Path
) -> None:
    assert admin("topic", "create", "orders").code == 0
    made = admin("acl", "user", "create", "ann", "-o", "json").json()
    assert isinstance(made, dict)
    ann = as_user("ann", made["secret"])
    refused = ann("produce", "orders", "hello")
    assert refused.code == 1
    assert "MS-2302" in refused.err
    assert "millstream acl grant ann" in refused.err
    assert admin("acl", "grant", "ann", "Pub", "Topic:orders").code == 0
    assert admin("acl", "grant", "ann", "sub", "topic:orders").code == 0
    assert ann("produce", "orders", "hello").code == 0
    listed = admin("acl", "list", "ann", "-o", "plain").out
    assert listed == "ann\tCustom\tTopic:orders\tPub,Sub\tAllow\tall\n"
    assert admin("acl", "revoke", "ann", "Topic:orders").code == 0
    assert ann("produce", "orders", "hello").code == 1
    assert admin("acl", "user", "delete", "ann").code == 0
    assert "MS-2301" in ann("produce", "orders", "hello").err


def test_a_test_says_which_entry_decides(admin: Millstream) -> None:
    assert admin("acl", "user", "create", "bob", "--secret", "secret-of-bob").code == 0
    assert admin("acl", "grant", "bob", "Pub", "Topic:*", "--from", "10.0.0.0/8").code == 0
    assert admin("acl", "grant", "bob", "All", "Topic:pay*", "--deny").code == 0
    allowed = admin("acl", "test", "bob", "Pub", "Topic:orders", "--from", "10.1.2.3")
    assert allowed.code == 0
    assert "allowed\tthe entry: Custom Allow Pub on Topic:* from 10.0.0.0/8\n" in allowed.out
    denied = admin("acl", "test", "bob", "Pub", "Topic:payments", "--from", "10.1.2.3")
    assert denied.code == 1
    assert "refused\tthe entry: Custom Deny All on Topic:pay*\n" in denied.out
    elsewhere = admin("acl", "test", "bob", "Pub", "Topic:orders")
    assert "refused\tno entry of bob matches\n" in elsewhere.out


def test_users_are_listed_changed_and_kept_in_office(admin: Millstream) -> None:
    assert admin("acl", "user", "create", "eve", "--secret", "secret-of-eve").out == "eve\tnormal\n"
    assert admin("acl", "user", "update", "eve", "--status", "disabled").code == 0
    assert "eve\tnormal\tdisabled" in admin("acl", "user", "list", "-o", "plain").out
    last = admin("acl", "user", "delete", "admin")
    assert last.code == 1
    assert "MS-2308" in last.err


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (("user", "create", "a/b"), "MS-2306"),
        (("grant", "nobody", "Pub", "Topic:a"), "MS-2303"),
        (("grant", "admin", "Fly", "Topic:a"), "MS-2307"),
        (("grant", "admin", "Pub", "Queue:a"), "MS-2307"),
        (("grant", "admin", "Pub", "Topic:a", "--from", "example.org"), "MS-2307"),
        (("revoke", "admin", "Topic:none"), "MS-2305"),
        (("test", "admin", "Pub", "Topic:a*"), "MS-2307"),
    ],
)
def test_a_mistake_is_told_with_its_number(admin: Millstream, arguments: tuple[str, ...], number: str) -> None:
    ran = admin("acl", *arguments)
    assert ran.code == 1
    assert number in ran.err
    assert "Traceback" not in ran.err
