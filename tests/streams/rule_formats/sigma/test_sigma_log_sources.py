"""Log sources and field names of Sigma in events of several recorders."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from written_rules import EVERYTHING, SOURCE_RULE, read_text

from millstream.streams.rule_formats.sigma import paths_of
from millstream.streams.rule_formats.sigma.log_sources import ANY_OTHER, ANY_WINDOWS
from millstream.streams.rules.event_rows import Places
from millstream.streams.rules.imported_rules import ImportedRules
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.raw_events import EventReader
from millstream.streams.rules.stage.stage import RuleStage

SYSMON = "Microsoft-Windows-Sysmon/Operational"


def fits(source: str, asked: str, event: dict[str, Any]) -> bool:
    """Whether the event fits a rule of that log source that asks that."""
    read = read_text(SOURCE_RULE % (source, asked))
    assert read.refused == ()
    return evaluate(read.rules[0].condition, field_reader(event, read.paths)) is True


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
        "product: macos, category: process_creation",
        "product: own_device",
        "category: proxy",
        "category: own_category",
        "service: own",
        "product: aws, service: guardduty",
    ],
)
def test_a_rule_whose_log_source_nothing_tells_is_left_out_or_judges_what_is_no_windows_event(source: str) -> None:
    left_out = read_text(SOURCE_RULE % (source, "X: x"))
    assert (left_out.rules, left_out.refused) == ((), ())
    assert [(one.rules, one.looks_at, one.unmapped) for one in left_out.sources] == [(1, "", True)]
    everything = read_text(SOURCE_RULE % (source, "X: x"), mapping=EVERYTHING)
    assert [(one.rules, one.looks_at, one.unmapped) for one in everything.sources] == [(1, ANY_OTHER, False)]
    events: list[tuple[dict[str, Any], bool]] = [
        ({"X": "x"}, True),
        ({"X": "y"}, False),
        ({"Channel": "Security", "X": "x"}, False),
        ({"winlog": {"channel": "Security"}, "X": "x"}, False),
    ]
    for event, held in events:
        assert evaluate(everything.rules[0].condition, field_reader(event, everything.paths)) is held


def test_correlations_of_rules_that_nothing_tells_are_left_out_with_them() -> None:
    count = "title: c\ncorrelation: {type: event_count, rules: [a], timespan: 5m, condition: {gte: 2}}\n"
    found = read_text(f"{SOURCE_RULE % ('product: macos', 'X: x')}---\n{count}")
    assert (found.rules, found.refused) == ((), ())
    assert {one.source: one.unmapped for one in found.sources} == {"macos": True, "correlation": True}


OF_PRODUCTS: list[tuple[dict[str, Any], set[str]]] = [
    ({"_path": "dns", "id.orig_h": "10.0.0.1", "query": "a.b"}, {"zeek", "zeek/dns"}),
    ({"event": {"dataset": "zeek.dns", "module": "zeek"}}, {"zeek", "zeek/dns"}),
    ({"event.dataset": "zeek.http"}, {"zeek", "zeek/http"}),
    ({"@stream": "http", "uri": "/"}, {"zeek", "zeek/http"}),
    ({"_path": "x509"}, {"zeek"}),
    (
        {
            "eventVersion": "1.08",
            "eventSource": "iam.amazonaws.com",
            "eventName": "CreateUser",
            "eventType": "AwsApiCall",
        },
        {"aws", "aws/cloudtrail"},
    ),
    ({"event": {"dataset": "aws.cloudtrail", "provider": "iam.amazonaws.com"}}, {"aws", "aws/cloudtrail"}),
    ({"category": "SignInLogs", "resourceId": "/tenants/1"}, {"azure", "azure/signinlogs"}),
    ({"Type": "AuditLogs", "OperationName": "Add user"}, {"azure", "azure/auditlogs"}),
    ({"category": "Administrative", "resourceId": "/SUBSCRIPTIONS/1/X"}, {"azure", "azure/activitylogs"}),
    ({"event": {"dataset": "azure.activitylogs"}}, {"azure", "azure/activitylogs"}),
    ({"riskEventType": "unfamiliarFeatures"}, {"azure", "azure/riskdetection"}),
    (
        {"eventType": "user.session.start", "published": "2026-01-01T00:00:00Z", "actor": {"id": "1"}},
        {"okta", "okta/okta"},
    ),
    ({"type": "EXECVE", "a0": "id"}, {"linux", "linux/auditd"}),
    ({"event": {"module": "auditd", "action": "executed"}}, {"linux", "linux/auditd"}),
    ({"facility": "daemon", "app": "dbus", "message": "m"}, {"linux", "linux/syslog"}),
    ({"SYSLOG_FACILITY": "3", "SYSLOG_IDENTIFIER": "dbus"}, {"linux", "linux/syslog"}),
    ({"facility": "authpriv", "app": "sshd"}, {"linux", "linux/syslog", "linux/auth", "linux/sshd", "sshd"}),
    ({"facility": 10, "appname": "sudo"}, {"linux", "linux/syslog", "linux/auth", "linux/sudo"}),
    ({"cs-method": "GET", "cs-uri-stem": "/", "sc-status": 200}, {"webserver"}),
    ({"http": {"request": {"method": "POST"}}, "event": {"dataset": "nginx.access"}}, {"webserver", "nginx"}),
    ({"event": {"dataset": "apache.error"}}, {"apache"}),
    ({"Channel": "Linux-Sysmon/Operational", "EventID": 1}, {"linux", "linux/process_creation", "process_creation"}),
    ({"Channel": SYSMON, "EventID": 1, "_path": "dns", "facility": "auth"}, {"process_creation"}),
    ({"category": "Security", "type": "login", "facility": "Berlin", "eventType": "created", "actor": "ada"}, set()),
    ({"verb": "spoke", "eventSource": "cron", "Type": "Alert", "app": "shop"}, set()),
    ({}, set()),
]
"""Events as recorders write them, and the log sources that each is of."""

PRODUCTS = {
    "zeek": "product: zeek", "zeek/dns": "product: zeek, service: dns", "zeek/http": "product: zeek, service: http",
    "aws": "product: aws", "aws/cloudtrail": "product: aws, service: cloudtrail",
    "azure": "product: azure", "azure/signinlogs": "product: azure, service: signinlogs",
    "azure/auditlogs": "product: azure, service: auditlogs",
    "azure/activitylogs": "product: azure, service: activitylogs",
    "azure/riskdetection": "product: azure, service: riskdetection",
    "okta": "product: okta", "okta/okta": "product: okta, service: okta",
    "linux": "product: linux", "linux/auditd": "product: linux, service: auditd",
    "linux/syslog": "product: linux, service: syslog", "linux/auth": "product: linux, service: auth",
    "linux/sshd": "product: linux, service: sshd", "linux/sudo": "product: linux, service: sudo",
    "linux/process_creation": "product: linux, category: process_creation",
    "process_creation": "category: process_creation",
    "sshd": "service: sshd", "webserver": "category: webserver", "apache": "service: apache", "nginx": "service: nginx",
}  # fmt: skip


@pytest.fixture(scope="module")
def of_products() -> ImportedRules:
    """A rule for each of these log sources, which asks for the same."""
    texts = (SOURCE_RULE.replace("id: a", f"id: {name}") % (words, "X: x") for name, words in PRODUCTS.items())
    found = read_text("---\n".join(texts))
    assert (found.refused, found.sources) == ((), ())
    return found


@pytest.mark.parametrize(("event", "sources"), OF_PRODUCTS)
def test_an_event_is_judged_by_the_rules_of_its_log_sources_alone(
    of_products: ImportedRules, event: dict[str, Any], sources: set[str]
) -> None:
    read = field_reader({**event, "X": "x"}, of_products.paths)
    assert {rule.id for rule in of_products.rules if evaluate(rule.condition, read)} == sources
    other = field_reader({**event, "X": "y"}, of_products.paths)
    assert not any(evaluate(rule.condition, other) for rule in of_products.rules)


def test_the_stage_finds_the_log_sources_of_events_that_plain_judging_finds(of_products: ImportedRules) -> None:
    events = [{**event, "X": "x"} for event, _ in OF_PRODUCTS] * 20
    stage = RuleStage(RuleSet(1, of_products.rules, of_products.paths))
    reader = EventReader(Places(of_products.paths), stage.class_fields)
    hits = stage.evaluate(reader.read([orjson.dumps(event) for event in events])[0])
    found: dict[int, set[str]] = {}
    for row, number in zip(hits.rows.tolist(), hits.rules.tolist(), strict=True):
        found.setdefault(row, set()).add(of_products.rules[number].id)
    assert [found.get(row, set()) for row in range(len(events))] == [sources for _, sources in OF_PRODUCTS] * 20


def test_rules_of_a_product_share_what_tells_its_events() -> None:
    texts = [
        SOURCE_RULE.replace("id: a", f"id: {number}")
        % ("product: aws, service: cloudtrail", f"eventName: Name{number}")
        for number in range(40)
    ]
    found = read_text("---\n".join(texts))
    stage = RuleStage(RuleSet(1, found.rules, found.paths))
    statistics = stage.statistics()
    # What they share: no channel, the source of the event, the data set.
    assert (statistics.atoms, statistics.shared_atoms) == (43, 3)
    assert stage.class_fields == ("Channel",)


@pytest.mark.parametrize(
    ("field", "event"),
    [
        ("c-uri", {"request_uri": "x"}),
        ("c-uri", {"url": {"original": "x"}}),
        ("cs-user-agent", {"cs(User-Agent)": "x"}),
        ("sc-status", {"http": {"response": {"status_code": "x"}}}),
    ],
)
def test_fields_of_web_servers_are_found_in_the_forms_of_several_recorders(field: str, event: dict[str, Any]) -> None:
    assert fits("category: webserver", f"{field}: x", {"cs-method": "get", **event})


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
        ("product: Google-Workspace", ANY_OTHER),
        ("product: windows", ""),
        ("product: windows, service: own, category: process_creation", ""),
        ("service: sshd", ""),
    ],
)
def test_an_import_tells_at_which_events_rules_without_a_sign_look(source: str, looks_at: str) -> None:
    found = read_text(SOURCE_RULE % (source, "X: x"), mapping=EVERYTHING)
    assert found.refused == ()
    assert [(one.rules, one.looks_at) for one in found.sources] == ([(1, looks_at)] if looks_at else [])
    held = {
        name: evaluate(found.rules[0].condition, field_reader({**event, "X": "x"}, found.paths))
        for name, event in {"other": {}, "windows": {"Channel": "any"}}.items()
    }
    assert held == {"other": looks_at == ANY_OTHER, "windows": looks_at == ANY_WINDOWS or source == "product: windows"}
