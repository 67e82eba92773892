"""The log sources and field names of Sigma in Windows events, as recorders write them.

Sources: the appendix "Sigma Taxonomy" 2.1.0 of the Sigma specification (log sources, channels, event ids); names of
fields by NXLog (flat), Winlogbeat 6 (`event_data`) and 7 (`winlog.event_data`), Azure Monitor (`EventData`, an object
or its text) and evtx_dump (`Event.EventData`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rules.conditions import Condition, Op, Predicate, all_of, any_of, negate
from millstream.streams.rules.rule import Path

__all__ = [
    "ALIKE",
    "LINUX_SYSMON",
    "PATHS",
    "WHOLE_EVENT",
    "WINDOWS_CATEGORIES",
    "channel_is",
    "knows_service",
    "other_spellings",
    "paths_of",
    "sysmon_condition",
    "windows_condition",
]

ALIKE: Final = 0.85
"""From here on a word is taken for a misspelling of another: 0 has nothing in common, 1 is the same."""

WHOLE_EVENT: Final = ""
"""The field of keywords: all values of an event as one text."""

_SYSMON: Final = "Microsoft-Windows-Sysmon/Operational"
_SECURITY: Final = "Security"
LINUX_SYSMON: Final = "Linux-Sysmon/Operational"
_POWERSHELL: Final = ("Microsoft-Windows-PowerShell/Operational", "PowerShellCore/Operational")
_CLASSIC_POWERSHELL: Final = "Windows PowerShell"


class _Source(NamedTuple):
    """Where events of a category are: in one of the channels with one of the ids, or from a provider."""

    channels: tuple[str, ...] = ()
    events: tuple[int, ...] = ()
    provider: str = ""

    @property
    def condition(self) -> Condition:
        return all_of(
            *([_is_text("Channel", self.channels)] if self.channels else ()),
            *([Predicate("EventID", Op.IN, self.events, absent=False)] if self.events else ()),
            *([_is_text("Provider_Name", (self.provider,))] if self.provider else ()),
        )


def _is_text(field: str, texts: Iterable[str]) -> Predicate:
    return Predicate(field, Op.IN, tuple(sorted({text.lower() for text in texts})), caseless=True, absent=False)


def _sysmon(*events: int) -> tuple[_Source, ...]:
    return (_Source((_SYSMON,), events),)


_KERNEL_FILE: Final = (_Source(provider="Microsoft-Windows-Kernel-File"),)

WINDOWS_CATEGORIES: Final[dict[str, tuple[_Source, ...]]] = {
    "process_creation": (*_sysmon(1), _Source((_SECURITY,), (4688,))),
    "file_change": _sysmon(2),
    "network_connection": _sysmon(3),
    "sysmon_status": _sysmon(4, 16),
    "process_termination": _sysmon(5),
    "driver_load": _sysmon(6),
    "image_load": _sysmon(7),
    "create_remote_thread": _sysmon(8),
    "raw_access_thread": _sysmon(9),
    "process_access": _sysmon(10),
    "file_event": _sysmon(11),
    "registry_add": _sysmon(12),
    "registry_delete": _sysmon(12),
    "registry_set": _sysmon(13),
    "registry_rename": _sysmon(14),
    "registry_event": _sysmon(12, 13, 14),
    "create_stream_hash": _sysmon(15),
    "pipe_created": _sysmon(17, 18),
    "wmi_event": _sysmon(19, 20, 21),
    "dns_query": _sysmon(22),
    "file_delete": _sysmon(23),
    "clipboard_capture": _sysmon(24),
    "process_tampering": _sysmon(25),
    "file_delete_detected": _sysmon(26),
    "file_block_executable": _sysmon(27),
    "file_block_shredding": _sysmon(28),
    "file_executable_detected": _sysmon(29),
    "sysmon_error": _sysmon(255),
    "file_access": _KERNEL_FILE,
    "file_rename": _KERNEL_FILE,
    "ps_classic_start": (_Source((_CLASSIC_POWERSHELL,), (400,)),),
    "ps_classic_provider_start": (_Source((_CLASSIC_POWERSHELL,), (600,)),),
    "ps_classic_script": (_Source((_CLASSIC_POWERSHELL,), (800,)),),
    "ps_module": (_Source(_POWERSHELL, (4103,)),),
    "ps_script": (_Source(_POWERSHELL, (4104,)),),
}

_SERVICES: Final[dict[str, tuple[str, ...]]] = {
    "application": ("Application",),
    "application-experience": (
        "Microsoft-Windows-Application-Experience/Program-Telemetry",
        "Microsoft-Windows-Application-Experience/Program-Compatibility-Assistant",
    ),
    "applocker": (
        "Microsoft-Windows-AppLocker/MSI and Script",
        "Microsoft-Windows-AppLocker/EXE and DLL",
        "Microsoft-Windows-AppLocker/Packaged app-Deployment",
        "Microsoft-Windows-AppLocker/Packaged app-Execution",
    ),
    "appmodel-runtime": ("Microsoft-Windows-AppModel-Runtime/Admin",),
    "appxdeployment-server": ("Microsoft-Windows-AppXDeploymentServer/Operational",),
    "appxpackaging-om": ("Microsoft-Windows-AppxPackaging/Operational",),
    "bitlocker": ("Microsoft-Windows-BitLocker/BitLocker Management",),
    "bits-client": ("Microsoft-Windows-Bits-Client/Operational",),
    "capi2": ("Microsoft-Windows-CAPI2/Operational",),
    "certificateservicesclient-lifecycle-system": (
        "Microsoft-Windows-CertificateServicesClient-Lifecycle-System/Operational",
    ),
    "codeintegrity-operational": ("Microsoft-Windows-CodeIntegrity/Operational",),
    "dhcp": ("Microsoft-Windows-DHCP-Server/Operational",),
    "diagnosis-scripted": ("Microsoft-Windows-Diagnosis-Scripted/Operational",),
    # The second is what Windows writes; the specification has the first, the display name.
    "dns-client": ("Microsoft-Windows-DNS Client Events/Operational", "Microsoft-Windows-DNS-Client/Operational"),
    "dns-server": ("DNS Server",),
    "dns-server-analytic": ("Microsoft-Windows-DNS-Server/Analytical",),
    "dns-server-audit": ("Microsoft-Windows-DNS-Server/Audit",),
    "driver-framework": ("Microsoft-Windows-DriverFrameworks-UserMode/Operational",),
    "firewall-as": ("Microsoft-Windows-Windows Firewall With Advanced Security/Firewall",),
    "hyper-v-worker": ("Microsoft-Windows-Hyper-V-Worker",),
    "iis-configuration": ("Microsoft-IIS-Configuration/Operational",),
    "kernel-event-tracing": ("Microsoft-Windows-Kernel-EventTracing",),
    "kernel-shimengine": (
        "Microsoft-Windows-Kernel-ShimEngine/Operational",
        "Microsoft-Windows-Kernel-ShimEngine/Diagnostic",
    ),
    "ldap": ("Microsoft-Windows-LDAP-Client/Debug",),
    "ldap_debug": ("Microsoft-Windows-LDAP-Client/Debug",),
    "lsa-server": ("Microsoft-Windows-LSA/Operational",),
    "microsoft-servicebus-client": ("Microsoft-ServiceBus-Client/Operational", "Microsoft-ServiceBus-Client/Admin"),
    "msexchange-management": ("MSExchange Management",),
    "ntfs": ("Microsoft-Windows-Ntfs/Operational",),
    "ntlm": ("Microsoft-Windows-NTLM/Operational",),
    "openssh": ("OpenSSH/Operational",),
    "powershell": _POWERSHELL,
    "powershell-classic": (_CLASSIC_POWERSHELL,),
    "printservice-admin": ("Microsoft-Windows-PrintService/Admin",),
    "printservice-operational": ("Microsoft-Windows-PrintService/Operational",),
    "security": (_SECURITY,),
    "security-mitigations": (
        "Microsoft-Windows-Security-Mitigations/Kernel Mode",
        "Microsoft-Windows-Security-Mitigations/User Mode",
    ),
    "sense": ("Microsoft-Windows-SENSE/Operational",),
    "servicebus-client": ("Microsoft-ServiceBus-Client/Operational", "Microsoft-ServiceBus-Client/Admin"),
    "shell-core": ("Microsoft-Windows-Shell-Core/Operational",),
    "smbclient-connectivity": ("Microsoft-Windows-SmbClient/Connectivity",),
    "smbclient-security": ("Microsoft-Windows-SmbClient/Security",),
    "smbserver-connectivity": ("Microsoft-Windows-SmbServer/Connectivity",),
    "sysmon": (_SYSMON,),
    "system": ("System",),
    "taskscheduler": ("Microsoft-Windows-TaskScheduler/Operational",),
    "terminalservices-localsessionmanager": ("Microsoft-Windows-TerminalServices-LocalSessionManager/Operational",),
    "vhdmp": ("Microsoft-Windows-VHDMP/Operational",),
    "windefend": ("Microsoft-Windows-Windows Defender/Operational",),
    "wmi": ("Microsoft-Windows-WMI-Activity/Operational",),
}


def windows_condition(category: str | None, service: str | None) -> Condition:
    """What an event of Windows must be; of a category or service that is not known, a record of any channel.

    Raises Fault for one that looks like a misspelling of another.
    """
    parts: list[Condition] = []
    if category is not None and _is_known("category", category, WINDOWS_CATEGORIES):
        parts.append(any_of(*(one.condition for one in WINDOWS_CATEGORIES[category])))
    if service is not None and _is_known("service", service, _SERVICES):
        parts.append(_is_text("Channel", _SERVICES[service]))
    return all_of(*parts) if parts else negate(Predicate("Channel", Op.IS_NULL))


def channel_is(name: str) -> Condition:
    """Whether an event is of the channel, in any case."""
    return _is_text("Channel", (name,))


def knows_service(service: str) -> bool:
    """Whether Windows has such a service, or one that is spelled nearly so."""
    return bool(difflib.get_close_matches(service, _SERVICES, n=1, cutoff=ALIKE))


def sysmon_condition(category: str, channel: str) -> Condition:
    """What an event of the category must be in another channel that Sysmon writes; false where Sysmon has none."""
    events = [one.events for one in WINDOWS_CATEGORIES[category] if one.channels == (_SYSMON,)]
    return any_of(*(_Source((channel,), ids).condition for ids in events))


def _is_known(kind: str, name: str, names: Mapping[str, object]) -> bool:
    near = difflib.get_close_matches(name, names, n=1, cutoff=ALIKE)
    if near and near[0] != name:
        raise Fault(f"no {kind} {name!r} of windows is known; {near[0]!r} is")
    return bool(near)


_DATA: Final[tuple[Path, ...]] = ((), ("event_data",), ("winlog", "event_data"), ("EventData",), ("Event", "EventData"))
"""Under which keys recorders put the data of an event."""

_SYSTEM: Final = ("Event", "System")

_COMPUTER: Final[tuple[Path, ...]] = (
    ("Computer",),
    ("Hostname",),
    ("computer_name",),
    ("winlog", "computer_name"),
    (*_SYSTEM, "Computer"),
)

_HEADER: Final[dict[str, tuple[Path, ...]]] = {
    "Channel": (("Channel",), ("log_name",), ("winlog", "channel"), (*_SYSTEM, "Channel")),
    "EventID": (
        ("EventID",),
        ("event_id",),
        ("winlog", "event_id"),
        (*_SYSTEM, "EventID", "#text"),
        (*_SYSTEM, "EventID"),
    ),
    "Provider_Name": (
        ("Provider_Name",),
        ("SourceName",),
        ("source_name",),
        ("winlog", "provider_name"),
        (*_SYSTEM, "Provider", "#attributes", "Name"),
        ("Provider",),
    ),
    "Computer": _COMPUTER,
    "ComputerName": (("ComputerName",), *_COMPUTER),
    "Level": (("Level",), ("level",), ("EventLevel",), (*_SYSTEM, "Level")),
    "Keywords": (("Keywords",), ("keywords",), ("winlog", "keywords"), (*_SYSTEM, "Keywords")),
    "Task": (("Task",), ("task",), ("winlog", "task"), (*_SYSTEM, "Task")),
    "Opcode": (("Opcode",), ("opcode",), ("winlog", "opcode"), (*_SYSTEM, "Opcode")),
    "Message": (("Message",), ("message",)),
    "Execution_ProcessID": (
        ("Execution_ProcessID",),
        ("ExecutionProcessID",),
        ("process_id",),
        ("winlog", "process", "pid"),
        (*_SYSTEM, "Execution", "#attributes", "ProcessID"),
    ),
    "Security_UserID": (
        ("Security_UserID",),
        ("UserID",),
        ("user", "identifier"),
        ("winlog", "user", "identifier"),
        (*_SYSTEM, "Security", "#attributes", "UserID"),
    ),
}

_TWINS: Final[dict[str, tuple[str, ...]]] = {
    # Process creation as the Security channel tells it (event 4688).
    "Image": ("NewProcessName",),
    "ParentImage": ("ParentProcessName",),
    "IntegrityLevel": ("MandatoryLabel",),
    "LogonId": ("SubjectLogonId",),
}
"""Other names of the same data."""

_UNNAMED: Final = (("Message",), ("message",))
"""Where data without names are seen: `Data` is what events of old providers hold."""


def paths_of(fields: Iterable[str]) -> dict[str, tuple[Path, ...]]:
    """Where Windows events of the known recorders hold the fields; the first place that holds something counts."""
    return {field: _places(field) for field in sorted(set(fields))}


def _places(field: str) -> tuple[Path, ...]:
    if field == WHOLE_EVENT:
        return ((),)
    if field in _HEADER:
        return _HEADER[field]
    places = [(*root, name) for name in (field, *_TWINS.get(field, ())) for root in _DATA]
    if "." in field:
        places.append(tuple(field.split(".")))
    return (*places, *(_UNNAMED if field == "Data" else ()))


PATHS: Final[dict[str, tuple[Path, ...]]] = paths_of(
    [WHOLE_EVENT, *_HEADER, *_TWINS, "CommandLine", "Data", "ScriptBlockText", "TargetFilename", "TargetObject", "User"]
)
"""The places of the fields that most rules name; `FromFiles.paths` has those of all fields of its rules."""

_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")


def other_spellings(field: str, text: str) -> tuple[str, ...]:
    """How else recorders write that value: NXLog writes the keywords of an event as a signed number."""
    if field != "Keywords" or not _HEXADECIMAL.fullmatch(text):
        return ()
    bits = int(text, 16)
    return (str(bits - (1 << 64) if bits >> 63 else bits),)
