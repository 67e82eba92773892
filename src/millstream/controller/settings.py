"""A controller's settings by RocketMQ's names, as tools read them (code 1010); two can be changed while it runs (1009).

A change holds until the controller stops, and on this controller alone; tools tell all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from millstream.controller.controller import TICK_S, Controller
from millstream.model.errors import NameRefused

__all__ = ["change_settings", "peers_text", "settings_of"]

_log = logging.getLogger(__name__)

_BOOLEANS: Final = {"true": True, "false": False}


def _set_unclean(controller: Controller, value: bool) -> None:
    controller.options.is_unclean = controller.elections.is_unclean = value


def _set_notifies(controller: Controller, value: bool) -> None:
    controller.options.notifies = value


_CHANGES: Final[dict[str, Callable[[Controller, bool], None]]] = {
    "enableElectUncleanMaster": _set_unclean,
    "notifyBrokerRoleChanged": _set_notifies,
}


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


def change_settings(controller: Controller, values: Mapping[str, str]) -> None:
    """Change these settings, all or none. Raises SETTING_UNKNOWN, SETTING_FIXED, ILLEGAL_SETTING."""
    present = settings_of(controller)
    for name, value in values.items():
        _check(name, value, present)
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
