"""The users and their entries: what is refused, and that a change holds only once it is saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from millstream.model.errors import AccessRefused, StoreError
from millstream.security.policy import Action, PolicyEntry, PolicyKind
from millstream.security.resource import ResourcePattern
from millstream.security.users import MAX_ENTRIES, MAX_USERS, AccessBook, User, UserKind, new_secret

ROOT = User("root", "secret-of-root", UserKind.SUPER)
ANN = User("ann", "secret-of-ann")


class Disk:
    """Counts what is saved, and fails when told to."""

    def __init__(self) -> None:
        self.saves = 0
        self.fails = False

    def __call__(self, users: Iterable[User], entries: Mapping[str, tuple[PolicyEntry, ...]], revision: int) -> None:
        if self.fails:
            raise StoreError("DISK_FULL", "No room.")
        self.saves += 1


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def book(disk: Disk) -> AccessBook:
    book = AccessBook(disk)
    book.create_user(ROOT)
    book.create_user(ANN)
    return book


def entry(resource: str, actions: str = "Pub", decision: str = "Allow", kind: str = "Custom") -> PolicyEntry:
    return PolicyEntry.read(resource, actions.split(","), (), decision, kind)


def test_a_user_of_a_name_is_there_once(book: AccessBook) -> None:
    with pytest.raises(AccessRefused) as refused:
        book.create_user(User("ann", "another-secret"))
    assert refused.value.name == "USER_EXISTS"
    assert book.get("ann").secret == ANN.secret


@pytest.mark.parametrize(
    "name", ["", "a b", "a/b", "a,b", "a=b", "../ann", "ann\n", "User:ann", "ann\0", "*", "ä", "a" * 65]
)
def test_a_name_that_a_header_could_not_carry_is_refused(book: AccessBook, name: str) -> None:
    with pytest.raises(AccessRefused) as refused:
        book.create_user(User(name, "a-good-secret"))
    assert refused.value.name == "ILLEGAL_USER"


@pytest.mark.parametrize("secret", ["", "short", "with blanks in", "x" * 257, "line\nbreak"])
def test_a_secret_that_cannot_be_a_secret_is_refused_and_not_shown(book: AccessBook, secret: str) -> None:
    with pytest.raises(AccessRefused) as refused:
        book.create_user(User("bob", secret))
    assert refused.value.name == "ILLEGAL_USER"
    assert not secret or secret not in str(refused.value)
    assert not secret or secret not in repr(User("bob", secret))


def test_the_last_super_user_can_be_neither_deleted_nor_weakened(book: AccessBook) -> None:
    for change in (
        lambda: book.delete_user("root"),
        lambda: book.update_user("root", enabled=False),
        lambda: book.update_user("root", kind=UserKind.NORMAL),
    ):
        with pytest.raises(AccessRefused) as refused:
            change()
        assert refused.value.name == "LAST_SUPER_USER"
    book.update_user("ann", kind=UserKind.SUPER)
    book.delete_user("root")
    assert [user.name for user in book.users()] == ["ann"]


def test_entries_of_a_resource_are_replaced_and_the_others_stay(book: AccessBook) -> None:
    book.put_entries("ann", [entry("Topic:a"), entry("Topic:b"), entry("Topic:a", kind="Default")])
    book.put_entries("ann", [entry("Topic:a", "Sub"), entry("Topic:a", "Pub", "Deny")])
    texts = [str(one) for one in book.entries("ann")]
    assert texts == [
        "Custom Deny Pub on Topic:a",
        "Custom Allow Sub on Topic:a",
        "Custom Allow Pub on Topic:b",
        "Default Allow Pub on Topic:a",
    ]


def test_entries_are_deleted_by_kind_and_resource(book: AccessBook) -> None:
    book.put_entries("ann", [entry("Topic:a"), entry("Topic:b"), entry("Topic:a", kind="Default")])
    book.delete_entries("ann", kind=PolicyKind.CUSTOM, pattern=ResourcePattern.parse("Topic:a"))
    assert len(book.entries("ann")) == 2
    with pytest.raises(AccessRefused) as refused:
        book.delete_entries("ann", pattern=ResourcePattern.parse("Group:a"))
    assert refused.value.name == "POLICY_NOT_FOUND"
    book.delete_entries("ann")
    assert book.entries("ann") == ()


def test_a_deleted_users_entries_do_not_come_back_with_the_name(book: AccessBook) -> None:
    book.put_entries("ann", [entry("*", "All")])
    book.delete_user("ann")
    book.create_user(ANN)
    assert book.entries("ann") == ()


def test_entries_of_nobody_are_refused(book: AccessBook) -> None:
    for change in (lambda: book.put_entries("bob", [entry("*")]), lambda: book.delete_user("bob")):
        with pytest.raises(AccessRefused) as refused:
            change()
        assert refused.value.name == "USER_NOT_FOUND"


def test_a_change_that_cannot_be_saved_does_not_hold(book: AccessBook, disk: Disk) -> None:
    heard: list[int] = []
    book.on_change.append(lambda: heard.append(1))
    disk.fails = True
    with pytest.raises(StoreError):
        book.create_user(User("bob", new_secret()))
    with pytest.raises(StoreError):
        book.put_entries("ann", [entry("*")])
    assert book.find("bob") is None
    assert book.entries("ann") == ()
    assert heard == []


def test_users_and_entries_have_their_limits(book: AccessBook) -> None:
    for number in range(MAX_USERS - 2):
        book.create_user(User(f"u{number}", "secret-of-many"))
    with pytest.raises(AccessRefused) as refused:
        book.create_user(User("more", "secret-of-many"))
    assert refused.value.name == "TOO_MANY_REQUESTS"
    with pytest.raises(AccessRefused) as refused:
        book.put_entries("ann", [entry(f"Topic:t{number}") for number in range(MAX_ENTRIES + 1)])
    assert refused.value.name == "ILLEGAL_POLICY"


def test_entries_are_read_from_texts_of_any_case() -> None:
    read = PolicyEntry.read("topic:orders", ["PUB", "sub"], ["10.0.0.1/8"], "ALLOW", "default")
    assert read == PolicyEntry(
        ResourcePattern.parse("Topic:orders"), frozenset({Action.PUB, Action.SUB}), sources=("10.0.0.0/8",),
        kind=PolicyKind.DEFAULT,
    )  # fmt: skip
