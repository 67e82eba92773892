"""The registry of consumer groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from state_bench import load_table

from millstream.broker.queues import consumer_groups as groups_module
from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.model.errors import NameRefused, StoreError
from millstream.model.group import ExponentialBackoff, FirstPosition, GroupConfig
from millstream.store.snapshot import Snapshot


def open_registry(directory: Path, *, auto_create: bool = True) -> GroupRegistry:
    registry = GroupRegistry(Snapshot(directory / "groups.json"), auto_create=auto_create)
    load_table(registry.table, directory)
    return registry


def test_groups_survive_a_restart(tmp_path: Path) -> None:
    audit = GroupConfig(
        "audit",
        fifo=True,
        max_attempts=3,
        backoff_s=(1, 2),
        exponential=ExponentialBackoff(100, 200, 1.5),
        enabled=False,
        first_position=FirstPosition.TIME,
        first_time_ms=7,
    )
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
    ("group", "name"),
    [
        (GroupConfig(""), "ILLEGAL_GROUP"),
        (GroupConfig("a b"), "ILLEGAL_GROUP"),
        (GroupConfig("x" * 121), "ILLEGAL_GROUP"),
        (GroupConfig("CID_RMQ_SYS_TRANS"), "ILLEGAL_GROUP"),
        (GroupConfig("TOOLS_CONSUMER"), "ILLEGAL_GROUP"),
        (GroupConfig("audit", max_attempts=0), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", max_attempts=1001), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", backoff_s=()), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", backoff_s=(1,) * 101), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", backoff_s=(1, -1)), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", backoff_s=(43_201,)), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", exponential=ExponentialBackoff(2, 1)), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", exponential=ExponentialBackoff(-1)), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", exponential=ExponentialBackoff(multiplier=0.5)), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", exponential=ExponentialBackoff(multiplier=float("nan"))), "ILLEGAL_GROUP_SETTING"),
        (GroupConfig("audit", first_time_ms=-1), "ILLEGAL_GROUP_SETTING"),
    ],
)
def test_illegal_groups_are_refused(tmp_path: Path, group: GroupConfig, name: str) -> None:
    registry = open_registry(tmp_path)
    for refuse in (registry.create, registry.update):
        with pytest.raises(NameRefused) as refused:
            refuse(group)
        assert refused.value.name == name
    assert registry.all() == []


def test_settings_that_are_changed_hold_over_a_restart(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    registry.update(GroupConfig("audit"))
    registry.update(GroupConfig("audit", max_attempts=2, enabled=False))
    again = open_registry(tmp_path)
    assert again.all() == [GroupConfig("audit", max_attempts=2, enabled=False)]
    with pytest.raises(NameRefused, match="switched off") as refused:
        again.ensure_enabled("audit")
    assert refused.value.name == "GROUP_DISABLED"


def test_a_group_under_which_tools_look_at_messages_is_never_kept(tmp_path: Path) -> None:
    registry = open_registry(tmp_path, auto_create=False)
    assert registry.ensure("MILLSTREAM_CLIENT") == GroupConfig("MILLSTREAM_CLIENT")
    assert registry.all() == []
    Snapshot(tmp_path / "groups.json").save(b'{"version":1,"groups":[{"name":"millstream-cli"},{"name":"audit"}]}')
    assert open_registry(tmp_path).all() == [GroupConfig("audit")]


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
