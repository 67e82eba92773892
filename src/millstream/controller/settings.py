"""A controller's settings under RocketMQ's names (code 1010); two can be changed at runtime (1009).

A change holds on this controller alone; tools tell all of them. It is kept over starts, as RocketMQ keeps it in its
configuration file; ours is the operator's, so a document in the controller's directory has it:

    controller-settings.json    by name what was configured when the setting was changed, and what it was changed to

Where the configuration says something else than it did then, it was changed later, and counts.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from millstream.controller.controller import TICK_S, Controller
from millstream.model.errors import NameRefused, StoreError
from millstream.store.files import refusal_name
from millstream.store.snapshot import Snapshot

__all__ = ["SETTINGS", "KeptSettings", "change_settings", "peers_text", "settings_of"]

_log = logging.getLogger(__name__)

SETTINGS: Final = "controller-settings.json"
"""The document in the controller's directory."""

_VERSION: Final = 1
_BOOLEANS: Final = {"true": True, "false": False}


def _set_unclean(controller: Controller, value: bool) -> None:
    controller.options.is_unclean = controller.elections.is_unclean = value


def _set_notifies(controller: Controller, value: bool) -> None:
    controller.options.notifies = value


_CHANGES: Final[dict[str, Callable[[Controller, bool], None]]] = {
    "enableElectUncleanMaster": _set_unclean,
    "notifyBrokerRoleChanged": _set_notifies,
}


class _Change(msgspec.Struct):
    configured: str
    value: str


class _Document(msgspec.Struct):
    version: int
    changes: dict[str, _Change]


class KeptSettings:
    """The changed settings of a controller, which has those of its configuration so far."""

    def __init__(self, controller: Controller, document: Snapshot) -> None:
        self._configured = {name: settings_of(controller)[name] for name in _CHANGES}
        self._document = document

    def restore(self, controller: Controller) -> None:
        """Change what was changed before. Raises STORE_FORMAT."""
        noted = self._load()
        for name, change in noted.items():
            if change.configured == self._configured.get(name) and change.value in _BOOLEANS:
                _CHANGES[name](controller, _BOOLEANS[change.value])
                _log.warning("Setting %s is %s, as it was changed to by a tool.", name, change.value)
        if any(change.configured != self._configured.get(name) for name, change in noted.items()):
            with contextlib.suppress(StoreError):
                # Forgotten for good: the configuration may say again what it said.
                self.note({})

    def note(self, values: Mapping[str, str]) -> None:
        """Keep these values; one that is as it is configured needs no note. Raises STORE_FAILED, DISK_FULL."""
        configured = self._configured
        changes = {name: one for name, one in self._load().items() if configured.get(name) == one.configured}
        changes |= {name: _Change(configured[name], value) for name, value in values.items() if name in configured}
        changes = {name: one for name, one in changes.items() if one.value != one.configured}
        try:
            self._document.save(msgspec.json.encode(_Document(_VERSION, changes)))
        except OSError as error:
            words = f"The settings cannot be kept, so they were not changed: {error}."
            raise StoreError(refusal_name(error, "STORE_FAILED"), words) from error

    def _load(self) -> dict[str, _Change]:
        text = self._document.load()
        if text is None:
            return {}
        try:
            noted = msgspec.json.decode(text, type=_Document)
        except msgspec.DecodeError as error:
            raise StoreError("STORE_FORMAT", f"{SETTINGS} cannot be read: {error}.") from None
        if noted.version != _VERSION:
            raise StoreError("STORE_FORMAT", f"{SETTINGS} is of version {noted.version}, not {_VERSION}.")
        return noted.changes


def peers_text(controller: Controller) -> str:
    """All controllers as `id:host:port;id:host:port`."""
    return ";".join(f"{peer.id}:{peer.address}" for peer in controller.options.peers)


def settings_of(controller: Controller) -> dict[str, str]:
    """All settings by name."""
    options = controller.options
    return {
        "controllerType": "DLedger",
        "controllerDLegerGroup": options.group,
        "controllerDLegerPeers": ";".join(f"{peer.id}-{peer.address}" for peer in options.peers),
        "controllerDLegerSelfId": options.self_id,
        "enableElectUncleanMaster": str(options.is_unclean).lower(),
        "notifyBrokerRoleChanged": str(options.notifies).lower(),
        "scanNotActiveBrokerInterval": f"{TICK_S * 1000:.0f}",
        "scanInactiveMasterInterval": f"{TICK_S * 1000:.0f}",
        "brokerSilenceMillis": f"{options.silence_s * 1000:.0f}",
        "masterLeaseMillis": f"{options.lease_s * 1000:.0f}",
    }


def change_settings(controller: Controller, values: Mapping[str, str], kept: KeptSettings | None) -> None:
    """Change these settings, all or none, for this run and those to come.

    Raises SETTING_UNKNOWN, SETTING_FIXED, ILLEGAL_SETTING, STORE_FAILED, DISK_FULL.
    """
    present = settings_of(controller)
    for name, value in values.items():
        _check(name, value, present)
    if kept is not None:
        kept.note(values)
    for name, value in values.items():
        if value != present[name]:
            _CHANGES[name](controller, _BOOLEANS[value])
            _log.info("Setting %s changed to %s.", name, value)


def _check(name: str, value: str, present: Mapping[str, str]) -> None:
    if name not in present:
        raise NameRefused("SETTING_UNKNOWN", f"A controller has no setting {name[:80]!r}.")
    if value == present[name]:
        return
    if name not in _CHANGES:
        raise NameRefused("SETTING_FIXED", f"The setting {name!r} cannot be changed while the controller runs.")
    if value not in _BOOLEANS:
        words = f"The setting {name} cannot be {value[:80]!r}."
        raise NameRefused("ILLEGAL_SETTING", words, remedy="Write true or false.")
