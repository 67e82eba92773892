"""Log sources and field names of Sigma in events of several recorders."""

from __future__ import annotations

from typing import Any

import pytest
from written_rules import SOURCE_RULE, read_text

from millstream.streams.rules.plain import field_reader, judge
from millstream.streams.rules.sigma import paths_of
from millstream.streams.rules.sigma.log_sources import ANY_OTHER, ANY_WINDOWS

SYSMON = "Microsoft-Windows-Sysmon/Operational"


def fits(source: str, asked: str, event: dict[str, Any]) -> bool:
    """Whether the event fits a rule of that log source that asks that."""
    read = read_text(SOURCE_RULE % (source, asked))
    assert read.refused == ()
    return judge(read.rules[0].condition, field_reader(event, read.paths)) is True


@pytest.mark.parametrize(
    ("category", "channel", "event_id"),
    [
        ("process_creation", SYSMON, 1),
        ("process_creation", "Security", 4688),
        ("file_change", SYSMON, 2),
        ("network_connection", SYSMON, 3),
        ("sysmon_status", SYSMON, 16),
        ("driver_load", SYSMON, 6),
        ("image_load", SYSMON, 7),
        ("create_remote_thread", SYSMON, 8),
        ("raw_access_thread", SYSMON, 9),
        ("process_access", SYSMON, 10),
        ("file_event", SYSMON, 11),
        ("registry_add", SYSMON, 12),
        ("registry_delete", SYSMON, 12),
        ("registry_set", SYSMON, 13),
        ("registry_event", SYSMON, 14),
        ("create_stream_hash", SYSMON, 15),
        ("pipe_created", SYSMON, 18),
        ("wmi_event", SYSMON, 21),
        ("dns_query", SYSMON, 22),
        ("file_delete", SYSMON, 23),
        ("process_tampering", SYSMON, 25),
        ("sysmon_error", SYSMON, 255),
        ("ps_classic_start", "Windows PowerShell", 400),
        ("ps_classic_provider_start", "Windows PowerShell", 600),
        ("ps_module", "Microsoft-Windows-PowerShell/Operational", 4103),
        ("ps_script", "PowerShellCore/Operational", 4104),
    ],
)
def test_a_category_is_a_channel_and_events_of_it(category: str, channel: str, event_id: int) -> None:
    source = f"product: windows, category: {category}"
    assert fits(source, "X: x", {"Channel": channel, "EventID": event_id, "X": "x"})
    assert not fits(source, "X: x", {"Channel": "Application", "EventID": event_id, "X": "x"})
    assert not fits(source, "X: x", {"Channel": channel, "EventID": 5, "X": "x"})


@pytest.mark.parametrize(
    ("service", "channel"),
    [
        ("security", "security"),
        ("sysmon", SYSMON),
        ("powershell", "Microsoft-Windows-PowerShell/Operational"),
        ("dns-client", "Microsoft-Windows-DNS-Client/Operational"),
        ("windefend", "Microsoft-Windows-Windows Defender/Operational"),
        ("msexchange-management", "MSExchange Management"),
        ("applocker", "Microsoft-Windows-AppLocker/EXE and DLL"),
    ],
)
def test_a_service_is_a_channel_in_any_case(service: str, channel: str) -> None:
    assert fits(f"product: windows, service: {service}", "X: x", {"Channel": channel, "X": "x"})
    assert not fits(f"product: windows, service: {service}", "X: x", {"Channel": f"{channel}2", "X": "x"})


def test_a_category_without_channel_is_known_by_its_provider() -> None:
    source = "product: windows, category: file_access"
    assert fits(source, "FileName: x", {"SourceName": "Microsoft-Windows-Kernel-File", "FileName": "x"})
    assert not fits(source, "FileName: x", {"SourceName": "Other", "FileName": "x"})


def test_a_rule_for_windows_alone_fits_events_of_any_channel() -> None:
    assert fits("product: windows", "X: x", {"Channel": "Any", "X": "x"})
    assert not fits("product: windows", "X: x", {"X": "x"})


RECORDERS = [
    lambda data: {"Channel": SYSMON, "EventID": 1, **data},
    lambda data: {"log_name": SYSMON, "event_id": 1, "event_data": data},
    lambda data: {"winlog": {"channel": SYSMON, "event_id": "1", "event_data": data}},
    lambda data: {"Channel": SYSMON, "EventID": 1, "EventData": data},
    lambda data: {"Channel": SYSMON, "EventID": "1", "EventData": '{"Image":"%s"}' % data["Image"]},  # noqa: UP031
    lambda data: {"Event": {"System": {"Channel": SYSMON, "EventID": 1}, "EventData": data}},
    lambda data: {"Event": {"System": {"Channel": SYSMON, "EventID": {"#text": 1}}, "EventData": data}},
]


@pytest.mark.parametrize("recorder", RECORDERS)
def test_every_recorders_form_is_read(recorder: Any) -> None:
    asked = "product: windows, category: process_creation", "Image|endswith: 'cmd.exe'"
    assert fits(*asked, recorder({"Image": "c:/cmd.exe"}))
    assert not fits(*asked, recorder({"Image": "c:/cmd.com"}))


def test_the_security_channel_tells_of_processes_by_other_names() -> None:
    event = {
        "Channel": "Security",
        "EventID": 4688,
        "NewProcessName": "a.exe",
        "ParentProcessName": "b.exe",
        "MandatoryLabel": "S-1-16-12288",
        "SubjectLogonId": "0x3e7",
    }
    source = "product: windows, category: process_creation"
    asked = "Image: a.exe, ParentImage: b.exe, IntegrityLevel: S-1-16-12288, LogonId: '0x3E7'"
    assert fits(source, asked, event)
    assert not fits(source, "Image: b.exe", event)


def test_data_without_names_are_sought_in_the_message() -> None:
    asked = "product: windows, category: ps_classic_start", "Data|contains: 'EngineVersion=2.'"
    head = {"Channel": "Windows PowerShell", "EventID": 400}
    assert fits(*asked, {**head, "Message": "...\n\tEngineVersion=2.0"})
    assert fits(*asked, {**head, "Data": "EngineVersion=2.0", "Message": ""})
    assert not fits(*asked, {**head, "Data": "EngineVersion=5.0", "Message": "EngineVersion=2.0"})


def test_audit_keywords_are_also_a_signed_number() -> None:
    asked = "product: windows, service: security", "Keywords: '0x8010000000000000'"
    # 0x8010000000000000 as 64 bits with a sign.
    assert fits(*asked, {"Channel": "Security", "Keywords": -9218868437227405312})
    assert fits(*asked, {"Channel": "Security", "Keywords": "0x8010000000000000"})
    assert not fits(*asked, {"Channel": "Security", "Keywords": -9214364837600034816})


def test_dotted_names_are_also_keys_within_keys() -> None:
    assert paths_of(["a.b"])["a.b"][0] == ("a.b",)
    assert fits("product: windows", "process.name: x", {"Channel": "c", "process": {"name": "x"}})


@pytest.mark.parametrize(
    "source",
    [
        "product: linux, service: auditd",
        "product: linux",
        "product: aws, service: cloudtrail",
        "product: macos, category: process_creation",
        "product: own_device",
        "category: proxy",
        "category: webserver",
        "category: own_category",
    ],
)
def test_a_rule_for_no_windows_fits_whatever_is_no_record_of_a_windows_event_log(source: str) -> None:
    assert fits(source, "X: x", {"X": "x"})
    assert not fits(source, "X: x", {"X": "y"})
    assert not fits(source, "X: x", {"Channel": "Security", "X": "x"})
    assert not fits(source, "X: x", {"winlog": {"channel": "Security"}, "X": "x"})


def test_sysmon_for_linux_is_a_source_of_linux() -> None:
    source = "product: linux, category: network_connection"
    assert fits(source, "X: x", {"Channel": "Linux-Sysmon/Operational", "EventID": 3, "X": "x"})
    assert not fits(source, "X: x", {"Channel": "Linux-Sysmon/Operational", "EventID": 1, "X": "x"})
    assert not fits(source, "X: x", {"Channel": SYSMON, "EventID": 3, "X": "x"})


def test_a_category_without_product_is_that_of_windows_and_of_others() -> None:
    assert fits("category: dns_query", "X: x", {"Channel": SYSMON, "EventID": 22, "X": "x"})
    assert fits("category: dns_query", "X: x", {"X": "x"})
    assert not fits("category: dns_query", "X: x", {"Channel": SYSMON, "EventID": 1, "X": "x"})


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("product: linuxx, category: process_creation", "no product 'linuxx' is known; 'linux' is"),
        (
            "product: windows, category: process_creations",
            "'process_creations' of windows is known; 'process_creation'",
        ),
        ("product: windows, service: securty", "no service 'securty' of windows is known; 'security' is"),
        ("category: webserve", "no category 'webserve' is known; 'webserver' is"),
        ("category: proces_creation", "no category 'proces_creation' is known; 'process_creation' is"),
        ("definition: none", "neither product nor category nor service"),
        ("product: windows, category: [a]", "the category ['a'] is no text"),
    ],
)
def test_an_unknown_log_source_is_refused_at_its_line(source: str, reason: str) -> None:
    (refused,) = read_text(SOURCE_RULE % (source, "X: x")).refused
    assert reason in refused.reason
    assert refused.line == 3


@pytest.mark.parametrize(
    ("source", "looks_at"),
    [
        ("product: windows, service: own", ANY_WINDOWS),
        ("product: windows, category: own", ANY_WINDOWS),
        ("product: own, category: own, service: own", ANY_OTHER),
        ("service: sshd", ANY_OTHER),
        ("category: webserver, service: apache", ANY_OTHER),
        ("product: Google-Workspace", ANY_OTHER),
        ("product: windows", ""),
        ("product: windows, service: own, category: process_creation", ""),
        ("product: linux, category: process_creation", ""),
    ],
)
def test_an_import_tells_at_which_events_rules_without_a_sign_look(source: str, looks_at: str) -> None:
    read = read_text(SOURCE_RULE % (source, "X: x"))
    assert read.refused == ()
    assert [(one.rules, one.looks_at) for one in read.sources] == ([(1, looks_at)] if looks_at else [])
    assert fits(source, "X: x", {"X": "x"}) is (looks_at != ANY_WINDOWS and "windows" not in source)
    assert fits(source, "X: x", {"Channel": "any", "X": "x"}) is (
        looks_at == ANY_WINDOWS or source == "product: windows"
    )
