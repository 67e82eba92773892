"""The registry of consumer groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.broker import groups as groups_module
from millstream.broker.groups import GroupRegistry
from millstream.model.errors import NameRefused, StoreError
from millstream.model.group import GroupConfig
from millstream.store.snapshot import Snapshot


def open_registry(directory: Path, *, auto_create: bool = True) -> GroupRegistry:
    registry = GroupRegistry(Snapshot(directory / "groups.json"), auto_create=auto_create)
    registry.load()
    return registry


def test_groups_survive_a_restart(tmp_path: Path) -> None:
    audit = GroupConfig("audit", fifo=True, max_attempts=3, backoff_s=(1, 2))
    assert open_registry(tmp_path).create(audit)
    again = open_registry(tmp_path)
    assert again.get("audit") == audit
    assert again.all() == [audit]
    again.delete("audit")
    assert open_registry(tmp_path).all() == []


def test_a_group_comes_into_being_at_its_first_use(tmp_path: Path) -> None:
    assert open_registry(tmp_path).ensure("audit") == GroupConfig("audit")
    assert open_registry(tmp_path).get("audit") == GroupConfig("audit")


def test_use_alone_adds_groups_up_to_a_limit_and_creation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_module, "MAX_GROUPS_ON_THE_FLY", 2)
    registry = open_registry(tmp_path)
    registry.ensure("first")
    registry.ensure("second")
    with pytest.raises(NameRefused, match="2 groups") as refused:
        registry.ensure("third")
    assert refused.value.name == "TOO_MANY_REQUESTS"
    assert registry.ensure("first") == GroupConfig("first")
    assert registry.create(GroupConfig("third"))


def test_without_auto_creation_a_missing_group_is_refused_by_name(tmp_path: Path) -> None:
    registry = open_registry(tmp_path, auto_create=False)
    for refuse in (registry.ensure, registry.get, registry.delete):
        with pytest.raises(NameRefused, match="'audit'") as refused:
            refuse("audit")
        assert refused.value.name == "GROUP_NOT_FOUND"
    assert registry.find("audit") is None


def test_creating_an_equal_group_again_changes_nothing_and_another_one_is_refused(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    assert registry.create(GroupConfig("audit")) is True
    assert registry.create(GroupConfig("audit")) is False
    with pytest.raises(NameRefused, match="not fifo, 17 attempts") as refused:
        registry.create(GroupConfig("audit", fifo=True))
    assert refused.value.name == "GROUP_EXISTS"


@pytest.mark.parametrize(
    "group",
    [
        GroupConfig(""),
        GroupConfig("a b"),
        GroupConfig("x" * 121),
        GroupConfig("CID_RMQ_SYS_TRANS"),
        GroupConfig("audit", max_attempts=0),
        GroupConfig("audit", max_attempts=1001),
        GroupConfig("audit", backoff_s=()),
        GroupConfig("audit", backoff_s=(1, -1)),
    ],
)
def test_illegal_groups_are_refused(tmp_path: Path, group: GroupConfig) -> None:
    registry = open_registry(tmp_path)
    with pytest.raises(NameRefused) as refused:
        registry.create(group)
    assert refused.value.name == "ILLEGAL_GROUP"
    assert registry.all() == []


def test_the_number_of_groups_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "MAX_GROUPS", 1)
    registry = open_registry(tmp_path)
    registry.ensure("a")
    with pytest.raises(NameRefused) as refused:
        registry.ensure("b")
    assert refused.value.name == "TOO_MANY_REQUESTS"


def test_another_format_is_refused(tmp_path: Path) -> None:
    Snapshot(tmp_path / "groups.json").save(b'{"version":9,"groups":[]}')
    with pytest.raises(StoreError, match="version 9, not 1") as refused:
        open_registry(tmp_path)
    assert refused.value.name == "STORE_FORMAT"
