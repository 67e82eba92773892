"""The real Windows rules of SigmaHQ: all are taken, and some find exactly the events that a plain search finds."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from real_input import event_lines, imported, needs_real_input

from millstream.streams.rules.reference import evaluate, field_reader

pytestmark = [pytest.mark.data, needs_real_input]

SYSMON = "Microsoft-Windows-Sysmon/Operational"


@pytest.mark.long
def test_every_real_rule_is_taken_with_author_and_licence() -> None:
    read = imported()
    assert [str(one) for one in read.refused] == []
    assert len(read.rules) == 2_407
    assert all(rule.author and rule.license == "Detection Rule License 1.1" for rule in read.rules)
    assert all(rule.id in rule.text and rule.statistics is None for rule in read.rules)


@pytest.mark.long
def test_real_rules_with_the_same_question_share_it() -> None:
    texts = {rule.id: str(rule.condition) for rule in imported().rules}
    assert sum("commandline contains ('powershell') caseless" in text.lower() for text in texts.values()) > 5


class Seen:
    """One event for a search by hand: its channel, id and fields wherever its recorder put them."""

    def __init__(self, event: dict[str, Any]) -> None:
        spelled = event.get("EventData", "")
        self.fields: dict[str, Any] = {
            **event.get("event_data", {}),
            **(msgspec.json.decode(spelled) if spelled.startswith("{") else {}),
            **event,
        }
        self.channel = str(event.get("Channel", event.get("log_name", ""))).lower()
        self.id = str(event.get("EventID", event.get("event_id", "")))

    @property
    def text(self) -> str:
        """All of it as JSON."""
        return json.dumps(self.fields, ensure_ascii=False).lower()

    def low(self, *names: str) -> str:
        """The first of the fields that is there, in lower case."""
        return next((str(self.fields[name]).lower() for name in names if self.fields.get(name) is not None), "")

    def of(self, channel: str, *ids: int) -> bool:
        return self.channel == channel.lower() and self.id in {str(one) for one in ids}

    @property
    def process(self) -> bool:
        """Whether a process was created: as Sysmon or as the Security channel tells it."""
        return self.of(SYSMON, 1) or self.of("Security", 4688)


def adws_connection(seen: Seen) -> bool:
    image = seen.low("Image")
    return (
        seen.of(SYSMON, 3)
        and seen.low("Initiated") == "true"
        and seen.low("DestinationPort") == "9389"
        and image != r"c:\windows\system32\dsac.exe"
        and not image.startswith((r"c:\windows\system32\windowspowershell", r"c:\windows\syswow64\windowspowershell"))
        and not image.startswith("c:\\program files\\powershell")
    )


def children_of_wmi(seen: Seen) -> bool:
    logon = seen.low("LogonId", "SubjectLogonId")
    return (
        seen.process
        and seen.low("ParentImage", "ParentProcessName").endswith(r"\wmiprvse.exe")
        and logon not in ("", "0x3e7", "null")
        and not re.search("authori|autori", seen.low("User"))
        and not seen.low("Image", "NewProcessName").endswith((r"\wmiprvse.exe", r"\werfault.exe"))
    )


def cobalt_strike_service(seen: Seen) -> bool:
    key, details = seen.low("TargetObject"), seen.low("Details")
    return (
        seen.of(SYSMON, 13)
        and (r"\system\currentcontrolset\services" in key or (r"\system\controlset" in key and r"\services" in key))
        and (
            ("admin$" in details and ".exe" in details)
            or all(part in details for part in ("%comspec%", "start", "powershell"))
        )
    )


def other_hosts_of_powershell(seen: Seen) -> bool:
    context, payload = seen.low("ContextInfo"), seen.low("Payload")
    own = re.search(r"= (c:[\\/]windows[\\/]sys(tem32|wow64)[\\/]windowspowershell[\\/]v1.0[\\/])?powershell", context)
    others = ("dsac.exe", "configsyncrun.exe", "wsmprovhost.exe -embedding", "sdiagnhost.exe -embedding")
    return (
        seen.channel in ("microsoft-windows-powershell/operational", "powershellcore/operational")
        and seen.id == "4103"
        and "ContextInfo" in seen.fields
        and not own
        and not any(other in context for other in others)
        and "update-help" not in payload
    )


BY_HAND: dict[str, tuple[int, Callable[[Seen], bool]]] = {
    "User Logoff Event": (165, lambda seen: seen.of("Security", 4634, 4647)),
    "Security Eventlog Cleared": (12, lambda seen: seen.of("Security", 1102)),
    "Sysmon Blocked File Shredding": (35, lambda seen: seen.of(SYSMON, 28)),
    "Password Policy Enumerated": (
        230,
        lambda seen: (
            seen.of("Security", 4661)
            and "%%5392" in seen.low("AccessList")
            and seen.low("ObjectServer") == "security account manager"
        ),
    ),
    "Suspicious Svchost Process Access": (
        74,
        lambda seen: (
            seen.of(SYSMON, 10)
            and seen.low("TargetImage").endswith(r":\windows\system32\svchost.exe")
            and seen.low("GrantedAccess") == "0x1f3fff"
            and "unknown" in seen.low("CallTrace")
            and "microsoft visual studio" not in seen.low("SourceImage")
        ),
    ),
    "Suspicious High IntegrityLevel Conhost Legacy Option": (
        65,
        lambda seen: (
            seen.process
            and seen.low("IntegrityLevel", "MandatoryLabel") in ("high", "s-1-16-12288")
            and all(part in seen.low("CommandLine") for part in ("conhost.exe", "0xffffffff", "-forcev1"))
        ),
    ),
    "Uncommon Connection to Active Directory Web Services": (10, adws_connection),
    "WmiPrvSE Spawned A Process": (4, children_of_wmi),
    "Potential CobaltStrike Service Installations - Registry": (1, cobalt_strike_service),
    "Alternate PowerShell Hosts - PowerShell Module": (324, other_hosts_of_powershell),
    "Exchange Set OabVirtualDirectory ExternalUrl Property": (
        1,
        lambda seen: (
            seen.channel == "msexchange management"
            and all(part in seen.text for part in ("set-oabvirtualdirectory", "externalurl", "page_load", "script"))
        ),
    ),
    "Remote PowerShell Session (PS Classic)": (
        2,
        lambda seen: (
            seen.of("Windows PowerShell", 400)
            and "hostname=serverremotehost" in seen.low("Message", "message")
            and "wsmprovhost.exe" in seen.low("Message", "message")
        ),
    ),
}
"""Titles of rules with the number of their hits and the same question, asked by hand."""


def found() -> Iterator[tuple[str, int, bool, bool]]:
    """Rule, line, and what the rule and the search by hand say of the event there, where one of them says yes."""
    read = imported()
    rules = {rule.title: rule for rule in read.rules if rule.title in BY_HAND}
    assert len(rules) == len(BY_HAND)
    for number, line in enumerate(event_lines()):
        event = msgspec.json.decode(line)
        seen, field_of = Seen(event), field_reader(event, read.paths)
        for title, (_, by_hand) in BY_HAND.items():
            by_rule = evaluate(rules[title].condition, field_of) is True
            expected = by_hand(seen)
            if by_rule or expected:
                yield title, number, by_rule, expected


@pytest.mark.long
def test_rules_find_what_a_search_by_hand_finds_in_all_real_events() -> None:
    hits: dict[str, int] = defaultdict(int)
    differences = []
    for title, number, by_rule, expected in found():
        hits[title] += by_rule
        if by_rule != expected:
            differences.append((title, number, by_rule))
    assert differences == []
    assert hits == {title: count for title, (count, _) in BY_HAND.items()}
