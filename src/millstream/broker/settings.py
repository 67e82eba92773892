"""A broker's settings under RocketMQ's names, as tools read them; a few can be changed at runtime.

A change holds until the broker stops; that of `brokerPermission` is saved. What has no name in RocketMQ is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from millstream.broker.broker import Broker
from millstream.model.errors import NameRefused
from millstream.model.message import MAX_BODY_BYTES
from millstream.model.topic import Permission

__all__ = ["MAX_RESERVED_HOURS", "change_settings", "settings_of"]

_log = logging.getLogger(__name__)

MAX_RESERVED_HOURS: Final = 87_600
"""Hours (ten years) for which messages can be kept at most."""

_HOUR_MS: Final = 3_600_000
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class _Setting:
    """How to read a setting; `change` is None where it stays as the broker was started."""

    read: Callable[[Broker], object]
    change: Callable[[Broker, str, str], Callable[[], None]] | None = None
    """Broker, name and value: what carries the change out. Raises ILLEGAL_SETTING."""


def settings_of(broker: Broker) -> dict[str, str]:
    """All settings by name."""
    return {name: _text(setting.read(broker)) for name, setting in _SETTINGS.items()}


def change_settings(broker: Broker, values: Mapping[str, str]) -> None:
    """Change these settings, all or none. Raises SETTING_UNKNOWN, SETTING_FIXED, ILLEGAL_SETTING."""
    changes = [_change(broker, name, value) for name, value in values.items()]
    for change in changes:
        change()
    _log.info("Settings changed: %s.", ", ".join(f"{name}={value}" for name, value in values.items()))


def _change(broker: Broker, name: str, value: str) -> Callable[[], None]:
    setting = _SETTINGS.get(name)
    if setting is None:
        raise NameRefused("SETTING_UNKNOWN", f"A broker has no setting {name[:80]!r}.")
    if _text(setting.read(broker)) == value:
        return _nothing
    if setting.change is None:
        raise NameRefused("SETTING_FIXED", f"The setting {name!r} cannot be changed while the broker runs.")
    return setting.change(broker, name, value)


def _nothing() -> None:
    """The setting has this value already."""


def _keep(broker: Broker, name: str, value: str) -> Callable[[], None]:
    hours = _whole(name, value, 1, MAX_RESERVED_HOURS)

    def change() -> None:
        store = broker.maintenance.store
        store.retention = replace(store.retention, keep_ms=hours * _HOUR_MS)

    return change


def _fill(broker: Broker, name: str, value: str) -> Callable[[], None]:
    percent = _whole(name, value, 10, 95)

    def change() -> None:
        broker.maintenance.store.retention = replace(
            broker.maintenance.store.retention, scarce_used_ratio=percent / 100
        )

    return change


def _create_groups(broker: Broker, name: str, value: str) -> Callable[[], None]:
    may = _BOOLEANS.get(value)
    if may is None:
        raise _illegal(name, value, "Write true or false.")

    def change() -> None:
        broker.groups.auto_create = may

    return change


def _permit(broker: Broker, name: str, value: str) -> Callable[[], None]:
    if value not in ("4", "6"):
        raise _illegal(name, value, "Write 6 (read and write) or 4 (read alone: no new messages are taken).")
    return partial(broker.maintenance.permission.put, Permission(int(value)))


def _whole(name: str, value: str, least: int, most: int) -> int:
    if not value.isascii() or not value.isdigit() or not least <= int(value[:10]) <= most:
        raise _illegal(name, value, f"Write a whole number from {least} to {most}.")
    return int(value)


def _illegal(name: str, value: str, remedy: str) -> NameRefused:
    return NameRefused("ILLEGAL_SETTING", f"The setting {name} cannot be {value[:80]!r}.", remedy=remedy)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flush_type(broker: Broker) -> str:
    return "SYNC_FLUSH" if broker.maintenance.store.options.sync_flush else "ASYNC_FLUSH"


def _used_percent(broker: Broker) -> int:
    return round(broker.maintenance.store.retention.scarce_used_ratio * 100)


_SETTINGS: Final[dict[str, _Setting]] = {
    "brokerName": _Setting(lambda broker: broker.name),
    "brokerClusterName": _Setting(lambda broker: broker.cluster),
    "brokerId": _Setting(lambda _: 0),
    "brokerPermission": _Setting(lambda broker: int(broker.maintenance.permission.value), _permit),
    "brokerRole": _Setting(lambda _: "ASYNC_MASTER"),
    "brokerIP1": _Setting(lambda broker: broker.advertised.host),
    "listenPort": _Setting(lambda broker: broker.advertised.port),
    "storePathRootDir": _Setting(lambda broker: broker.directory),
    "flushDiskType": _Setting(_flush_type),
    "flushIntervalCommitLog": _Setting(lambda broker: broker.maintenance.store.options.flush_interval_ms),
    "mappedFileSizeCommitLog": _Setting(lambda broker: broker.maintenance.store.options.segment_bytes),
    "maxMessageSize": _Setting(lambda _: MAX_BODY_BYTES),
    "fileReservedTime": _Setting(lambda broker: broker.maintenance.store.retention.keep_ms // _HOUR_MS, _keep),
    "diskMaxUsedSpaceRatio": _Setting(_used_percent, _fill),
    "autoCreateTopicEnable": _Setting(lambda _: False),
    "autoCreateSubscriptionGroup": _Setting(lambda broker: broker.groups.auto_create, _create_groups),
    "enablePropertyFilter": _Setting(lambda _: True),
    "longPollingEnable": _Setting(lambda _: True),
    "timerWheelEnable": _Setting(lambda _: True),
    "recallMessageEnable": _Setting(lambda _: True),
    "flushConsumerOffsetInterval": _Setting(lambda broker: int(broker.options.offset_save_interval_s * 1000)),
    "transactionTimeOut": _Setting(lambda broker: broker.options.transactions.first_check_ms),
    "transactionCheckInterval": _Setting(lambda broker: broker.options.transactions.check_interval_ms),
    "transactionCheckMax": _Setting(lambda broker: broker.options.transactions.max_checks),
}
