"""Rules for registry changes over event 4657, which has them in other fields than Sysmon's events."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from written_rules import SOURCE_RULE, read_text

from millstream.streams.rule_formats.sigma.registry_audit import audit_reading
from millstream.streams.rules.conditions import Condition, Op, Predicate, Truth, predicates_of
from millstream.streams.rules.event_rows import JsonEvents
from millstream.streams.rules.imported_rules import ImportedRules
from millstream.streams.rules.reference import answer, evaluate, field_reader
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.condition_compiler import positive, reduce_condition
from millstream.streams.rules.stage.stage import RuleStage

SYSMON = "Microsoft-Windows-Sysmon/Operational"
RUN = r"\REGISTRY\MACHINE\SOFTWARE\Microsoft\Windows\CurrentVersion\Run"
USER_RUN = r"\REGISTRY\USER\S-1-5-21-1-2-3-1001\SOFTWARE\Microsoft\Windows\CurrentVersion\Run"
LSA = r"\REGISTRY\MACHINE\SYSTEM\ControlSet001\Control\Lsa"
DWORD = {"NewValueType": "%%1876"}


def audited(key: str = RUN, name: str = "Updater", **fields: Any) -> dict[str, Any]:
    """An event 4657 in which a text was set, if the fields do not say otherwise."""
    return {
        "Channel": "Security",
        "EventID": 4657,
        "ObjectName": key,
        "ObjectValueName": name,
        "OperationType": "%%1905",
        "NewValueType": "%%1873",
        "NewValue": r"C:\Temp\a.exe",
        "ProcessName": r"C:\Windows\System32\reg.exe",
        "ProcessId": "0xa5c",
        **fields,
    }


def fitting(read: ImportedRules, *events: dict[str, Any]) -> list[bool]:
    """Which events fit the only rule; plain judge and stage say the same."""
    assert read.refused == ()
    (rule,) = read.rules
    plainly = [evaluate(rule.condition, field_reader(event, read.paths)) is True for event in events]
    found = RuleStage(RuleSet(1, read.rules, read.paths)).evaluate(JsonEvents(list(events), read.paths))
    assert found.rows.tolist() == [row for row, held in enumerate(plainly) if held]
    return plainly


def asks(asked: str, category: str = "registry_set", more: str = "") -> ImportedRules:
    """What is read of a rule for the category that asks that."""
    return read_text(SOURCE_RULE % (f"product: windows, category: {category}{more}", asked))


@pytest.mark.parametrize(
    ("asked", "event"),
    [
        (r"TargetObject|contains: '\CurrentVersion\Run\'", audited()),
        (r"TargetObject|contains: '\currentversion\RUN\Upd'", audited()),
        (r"TargetObject|contains: 'Updat'", audited()),
        (r"TargetObject|contains: 'Microsoft\Windows'", audited()),
        (r"TargetObject|contains: '\C:\a\b.exe'", audited(name=r"C:\a\b.exe")),
        (r"TargetObject|contains: 'Run\C:\a\'", audited(name=r"C:\a\b.exe")),
        (r"TargetObject|contains: 'HKLM\SOFTWARE\Microsoft\'", audited()),
        (r"TargetObject|contains: '\SYSTEM\CurrentControlSet\Control\Lsa\'", audited(LSA)),
        (r"TargetObject|contains: '\ControlSet001\Control\'", audited(LSA)),
        (r"TargetObject|contains|all: ['ControlSet', '\Control\Lsa']", audited(LSA)),
        (r"TargetObject|endswith: '\Run\Updater'", audited()),
        (r"TargetObject|endswith: 'Updater'", audited()),
        (r"TargetObject|endswith: 'System\CurrentControlSet\Control\Lsa\LmCompat'", audited(LSA, "LmCompat")),
        (r"TargetObject|endswith: '\Run\(Default)'", audited(name="")),
        (r"TargetObject|startswith: 'HKLM\Software\'", audited()),
        (r"TargetObject|startswith: 'HKU\'", audited(USER_RUN)),
        (r"TargetObject|startswith: '\REGISTRY\MACHINE\SOFTWARE'", audited()),
        (r"TargetObject|startswith: 'HKLM\SYSTEM\CurrentControlSet\Control\Lsa\LmC'", audited(LSA, "LmCompat")),
        (r"TargetObject: 'HKLM\SYSTEM\CurrentControlSet\Control\Lsa\LmCompat'", audited(LSA, "LmCompat")),
        (r"TargetObject: 'HKLM\SYSTEM\ControlSet001\Control\Lsa\LmCompat'", audited(LSA, "LmCompat")),
        (r"Image|endswith: '\reg.exe'", audited()),
        (r"Details|contains: '\Temp\'", audited()),
        ("Details: 'DWORD (0x00000001)'", audited(**DWORD, NewValue="1")),
        ("Details: 'DWORD (0x00000001)'", audited(**DWORD, NewValue="0x1")),
        ("Details: 'DWORD (0x20080000)'", audited(**DWORD, NewValue="537395200")),
        ("Details: 'DWORD (0x0000001f)'", audited(NewValueType="REG_DWORD", NewValue="0x0000001F")),
        ("Details: 'QWORD (0x00000001-0x00000000)'", audited(NewValueType="%%1883", NewValue="4294967296")),
        ("Details|contains: '0x00000001'", audited(**DWORD, NewValue="1")),
        ("Details|startswith: 'DWORD'", audited(**DWORD, NewValue="7")),
        ("Details: ['DWORD (0x00000000)', 'DWORD (0x00000002)']", audited(**DWORD, NewValue="2")),
        ("Details: '1'", audited(NewValue="1")),
        ("Details: 1", audited(NewValue="1")),
        ("Details: '(Empty)'", audited(NewValue="")),
        ("Details: 'Binary Data'", audited(NewValueType="%%1875", NewValue="<binary>")),
        ("EventType: SetValue", audited(EventType="AUDIT_SUCCESS")),
        ("EventID: 13", audited()),
    ],
)
def test_a_rule_fits_what_event_4657_has_in_other_fields(asked: str, event: dict[str, Any]) -> None:
    assert fitting(asks(asked), event) == [True]


@pytest.mark.parametrize(
    ("asked", "event"),
    [
        (r"TargetObject|contains: '\Run\Other'", audited()),
        (r"TargetObject|contains: '\RunUpdater'", audited()),
        (r"TargetObject|contains: 'HKLM\SOFTWARE\'", audited(USER_RUN)),
        (r"TargetObject|contains: '\SYSTEM\CurrentControlSet\Services\'", audited(LSA)),
        (r"TargetObject|contains: '\CurrentControlSet001\'", audited(LSA)),
        (r"TargetObject|endswith: '\Run'", audited()),
        (r"TargetObject|endswith: '\Run\'", audited(name="")),
        (r"TargetObject|startswith: 'HKLM\System'", audited()),
        (r"TargetObject|startswith: 'HKLMX'", audited()),
        (r"TargetObject: 'HKLM\SYSTEM\CurrentControlSet\Control\Lsa'", audited(LSA, "LmCompat")),
        (r"TargetObject: 'HKU\SYSTEM\CurrentControlSet\Control\Lsa\LmCompat'", audited(LSA, "LmCompat")),
        (r"Image|endswith: '\regedit.exe'", audited()),
        ("Details: 'DWORD (0x00000001)'", audited(**DWORD, NewValue="10")),
        ("Details: 'DWORD (0x00000001)'", audited(NewValue="1")),
        ("Details: '1'", audited(**DWORD, NewValue="1")),
        ("Details: 'DWORD (0x00000001)'", audited(NewValueType="%%1883", NewValue="1")),
        ("Details: '(Empty)'", audited()),
        ("Details: null", audited(NewValue="-")),
        ("EventType: CreateKey", audited()),
        ("EventType: AUDIT_SUCCESS", audited(EventType="AUDIT_SUCCESS")),
        ("EventID: 12", audited()),
    ],
)
def test_a_rule_does_not_fit_another_key_name_value_or_process(asked: str, event: dict[str, Any]) -> None:
    assert fitting(asks(asked), event) == [False]


@pytest.mark.parametrize(
    ("category", "operations"),
    [
        ("registry_set", [True, True, False]),
        ("registry_add", [True, False, False]),
        ("registry_delete", [False, False, True]),
        ("registry_event", [True, True, True]),
        ("registry_rename", [False, False, False]),
    ],
)
def test_the_kind_of_change_tells_the_category(category: str, operations: list[bool]) -> None:
    read = asks("TargetObject|contains: Updater", category)
    by_number = [audited(OperationType=f"%%{number}") for number in (1904, 1905, 1906)]
    words = ("New registry value created", "Existing registry value modified", "Registry value deleted")
    assert fitting(read, *by_number) == operations
    assert fitting(read, *(audited(OperationType=word) for word in words)) == operations


def test_what_is_deleted_has_no_details() -> None:
    deleted = audited(OperationType="%%1906", NewValueType="-", NewValue="-")
    assert fitting(asks("Details: null, EventType: DeleteValue", "registry_event"), deleted, audited()) == [True, False]
    assert fitting(asks("Details: '(Empty)'", "registry_event"), deleted) == [False]


def test_other_events_and_channels_are_no_changes() -> None:
    read = asks("TargetObject|contains: Updater")
    assert fitting(read, audited(EventID=4656), audited(Channel="System")) == [False, False]
    assert fitting(read, audited(EventID=4663), audited(Channel="security")) == [False, True]


def test_events_of_sysmon_are_judged_by_their_own_fields() -> None:
    event = {"Channel": SYSMON, "EventID": 13, "TargetObject": r"HKLM\X\Run\Updater", "EventType": "SetValue"}
    read = asks(r"TargetObject|endswith: '\Run\Updater', EventType: SetValue")
    assert fitting(read, event, {**audited(), "Channel": SYSMON, "EventID": 13}) == [True, False]


def test_events_of_other_recorders_are_read_too() -> None:
    told = {key: one for key, one in audited().items() if key not in ("Channel", "EventID")}
    read = asks(r"TargetObject|endswith: '\Run\Updater', Image|endswith: '\reg.exe'")
    winlogbeat = {"winlog": {"channel": "Security", "event_id": "4657", "event_data": told}}
    evtx = {"Event": {"System": {"Channel": "Security", "EventID": 4657}, "EventData": told}}
    assert fitting(read, winlogbeat, evtx) == [True, True]


@pytest.mark.parametrize(
    "asked",
    [
        r"TargetObject: 'HKLM\Soft*\Run\U*er'",
        r"TargetObject|re: 'Run.Upd'",
        r"TargetObject|contains|cased: 'Updater'",
        r"TargetObject|fieldref: Image",
        "Details|re: 'exe$'",
    ],
)
def test_a_rule_that_cannot_be_asked_exactly_judges_no_event_4657(asked: str) -> None:
    read = asks(asked)
    assert not any(4657 in predicate.operands for predicate in predicates_of(read.rules[0].condition))
    assert fitting(read, audited()) == [False]


def test_a_service_beside_the_category_counts() -> None:
    asked = "TargetObject|contains: Updater"
    assert fitting(asks(asked, more=", service: sysmon"), audited()) == [False]
    assert fitting(asks(asked, more=", service: security"), audited()) == [True]
    assert fitting(read_text(SOURCE_RULE % ("category: registry_set", asked)), audited()) == [True]


def test_exceptions_and_filters_hold_for_event_4657() -> None:
    rule = r"""title: t
id: a
logsource: {product: windows, category: registry_set}
detection:
    s: {TargetObject|contains: '\Run\'}
    known: {Image|endswith: '\setup.exe'}
    condition: s and not known
---
title: f
logsource: {product: windows, category: registry_set}
filter:
    rules: [a]
    ours: {TargetObject|endswith: '\Ours'}
    condition: not ours
"""
    events = (audited(), audited(name="Ours"), audited(ProcessName=r"C:\setup.exe"))
    assert fitting(read_text(rule), *events) == [True, False, False]


def spellings(key: str, name: str) -> set[str]:
    """What Sysmon's rules may call the value: by the kernel's name, by that of the hive, by the current control set."""
    keys = {key}
    for kernel, hive in ((r"\registry\machine", "hklm"), (r"\registry\user", "hku")):
        if (key + "\\").startswith(kernel + "\\"):
            keys.add(hive + key.removeprefix(kernel))
    current = {one.replace(r"hklm\system\controlset001", r"hklm\system\currentcontrolset", 1) for one in keys}
    return {f"{one}\\{name or '(default)'}" for one in keys | current}


@pytest.mark.parametrize("seed", range(4))
def test_a_question_holds_where_it_holds_for_key_and_name_together(seed: int) -> None:
    random = Random(seed)
    keys = [r"\registry\machine", r"\registry\machine\system\controlset001", r"\registry\user\s-1", r"\registry\a\{1}"]
    found = 0
    for _ in range(500):
        key = random.choice(keys) + random.choice(("", r"\a", r"\a\b", r"\system\a"))
        name = random.choice(("", "a", r"a\b", "set", "(default)", "b"))
        told = sorted(spellings(key, name))
        source = random.choice(told) if random.random() < 0.8 else random.choice((r"\x\a", r"lm\a", "", "set001"))
        cut = sorted(random.randrange(len(source) + 1) for _ in range(2))
        op = random.choice((Op.IN, Op.CONTAINS, Op.STARTS, Op.ENDS))
        first = 0 if op in (Op.IN, Op.STARTS) else cut[0]
        last = len(source) if op in (Op.IN, Op.ENDS) else cut[1]
        predicate = Predicate("TargetObject", op, (source[first:last],), caseless=True, absent=False)
        held = evaluate(audit_reading(predicate), {"ObjectName": key, "ObjectValueName": name}.get)
        expected = any(answer(predicate, {"TargetObject": one}.get) is True for one in told)
        assert held is expected, (predicate, key, name)
        found += expected
    assert 100 < found < 500


@pytest.mark.parametrize("category", ["registry_set", "registry_delete", "registry_add", "registry_event"])
def test_nothing_is_added_to_what_is_left_of_a_rule_for_other_events(category: str) -> None:
    asked = r"TargetObject|contains: '\Run\', Details|contains: x, Image|endswith: y"
    both, of_sysmon = (asks(asked, category, more).rules[0].condition for more in ("", ", service: sysmon"))

    def left(formula: Condition, channel: str, number: int) -> Condition:
        """What is left of a rule where channel and number of an event are known, as in the stage."""
        event = {"Channel": channel, "EventID": number}
        head = (predicate for predicate in predicates_of(formula) if predicate.field in event)
        return reduce_condition(positive(formula), {predicate: answer(predicate, event.get) for predicate in head})

    for number in (1, 12, 13, 14):
        assert left(both, SYSMON, number) == left(of_sysmon, SYSMON, number)
    assert left(both, "Security", 4656) == left(both, "System", 4657) == Truth(False)
    assert {predicate.field for predicate in predicates_of(left(both, "Security", 4657))} == {
        "OperationType", "ObjectName", "ObjectValueName", "NewValue", "NewValueType", "ProcessName",
    }  # fmt: skip


def test_what_does_not_concern_the_registry_stays_as_it_is() -> None:
    predicate = Predicate("SubjectUserName", Op.IN, ("x",), caseless=True, absent=False)
    assert audit_reading(predicate) == predicate
    assert audit_reading(Truth(True)) == Truth(True)
