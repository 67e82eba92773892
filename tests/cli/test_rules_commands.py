"""`millstream rules`, as scripts use it: without a server, but for topics."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Ran, run
from crash.file_twins import HastyFiles

from millstream.cli.main import main
from millstream.streams.rules.changes import switch_rules
from millstream.streams.rules.notes import QuarantineNote, RuleNotes, WorkNote
from millstream.streams.rules.store import MIN_KEPT_VERSIONS, RuleStore

pytestmark = pytest.mark.process


RULES = """\
- rule: shell
  title: A shell
  level: high
  tags: [attack.t1059]
  when:
    EventID: [1, 4688]
    Image: {ends: ['\\cmd.exe', '\\powershell.exe'], caseless: true}
    not: {User: SYSTEM}
- rule: logon_failed
  level: low
  when: {EventID: 4625}
- rule: burst
  count: {rules: [logon_failed], by: Ip, within: 10 min, at least: 5}
"""
EVENTS = [
    {"EventID": 1, "Image": "C:\\Windows\\CMD.exe", "User": "ada"},
    {"EventID": 1, "Image": "C:\\Windows\\cmd.exe", "User": "SYSTEM"},
    {"EventID": "4625", "Ip": "10.0.0.1"},
    {"EventID": 4625, "Ip": "10.0.0.1"},
]

Rules = Callable[..., Ran]


@pytest.fixture
def rules(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Runs one command in this process over the store `store`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_RULES", str(tmp_path / "store"))

    def command(*arguments: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(["rules", *arguments])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return command


@pytest.fixture
def filled(rules: Rules, tmp_path: Path) -> Rules:
    """The same, with three rules in the store and a file of events."""
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    assert rules("import", "rules.yml").code == 0
    return rules


def test_an_import_tells_what_is_new_changed_and_as_before(filled: Rules, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES.replace("low", "medium") + "- {rule: new, when: {x: 1}}\n")
    told = filled("import", "rules.yml", "-o", "json").json()
    assert told == {
        "version": 2,
        "taken": 4,
        "added": ["new"],
        "changed": ["logon_failed"],
        "same": 2,
        "refused": [],
        "filters": [],
        "log_sources": [],
        "passed_over": [],
        "rules": 4,
    }
    assert filled("import", "rules.yml", "-o", "json").json()["version"] == 2


def test_an_import_with_one_bad_rule_takes_the_others_and_tells_file_line_and_reason(
    filled: Rules, tmp_path: Path
) -> None:
    (tmp_path / "bad.yml").write_text("- {rule: one, when: {x: 1}}\n- {rule: two, when: {x: {end: y}}}\n")
    done = filled("import", "bad.yml", "-o", "table")
    assert done.code == 5
    assert "1 rule taken: 1 new; version 2 has 4 rules" in done.out
    assert "bad.yml:2:26: There is no 'end' here. Did you mean 'ends'?" in done.err


def test_an_import_warns_of_an_empty_directory_and_an_empty_file_and_takes_the_rest(
    rules: Rules, tmp_path: Path
) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "none.yml").write_text("")
    (tmp_path / "empty").mkdir()
    done = rules("import", "rules.yml", "empty", "none.yml", "-o", "table")
    assert done.code == 0
    assert "3 rules taken" in done.out
    assert "warning: empty: The directory empty has no files of rules" in done.err
    assert "warning: none.yml: The file has no rule." in done.err
    assert rules("import", "none.yml", "-o", "table").code == 1


def test_an_import_tells_which_rules_nothing_can_be_judged_by_and_which_are_left_out(
    rules: Rules, tmp_path: Path
) -> None:
    text = "title: t\nid: {0}\nlogsource: {{product: {0}}}\ndetection: {{s: {{a: 1}}, condition: s}}\n"
    (tmp_path / "rules.yml").write_text("---\n".join(text.format(name) for name in ("aws", "macos", "own")))
    some = rules("import", "rules.yml", "--dry-run", "-o", "table")
    assert some.code == 0
    assert "1 rule would be taken" in some.out
    told = "2 rules were left out, since no mapping tells which events are of their log source: macos 1, own 1\n"
    assert some.err.startswith(told)
    assert "--mapping or --log-source tells; with --unmapped everything they judge all events." in some.err
    every = rules("import", "rules.yml", "--dry-run", "--unmapped", "everything", "-o", "table")
    assert "2 rules look at every event that is no record of a Windows event log: macos 1, own 1" in every.err
    assert "--log-source, or a mapping, says" in every.err
    one = rules("import", "rules.yml", "--log-source", "product=macos", "-o", "table")
    assert "1 rule taken" in one.out
    assert one.err == "2 rules were left out, since they are for other log sources: aws 1, own 1\n"
    told_json = rules("import", "rules.yml", "--log-source", "product=own", "-o", "json").json()["log_sources"]
    assert told_json[0] == {"source": "aws", "rules": 1, "looks_at": "", "unmapped": False}
    assert rules("import", "rules.yml", "--log-source", "okta").code == 2


def test_an_import_of_rules_that_nothing_can_be_judged_by_alone_is_a_failure(rules: Rules, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(
        "title: t\nid: a\nlogsource: {product: macos}\ndetection: {s: {a: 1}, condition: s}\n"
    )
    assert rules("import", "rules.yml").code == 1
    assert rules("import", "rules.yml", "--unmapped", "everything").code == 0


def test_rules_of_sigma_are_imported_with_a_mapping_of_events(rules: Rules, tmp_path: Path) -> None:
    rule = "title: t\nid: a\nlogsource: {product: linux}\ndetection: {s: {user|expand: '%Admins%'}, condition: s}\n"
    (tmp_path / "rule.yml").write_text(rule)
    (tmp_path / "mapping.yml").write_text(
        "log sources: [{product: linux, when: {log_type: auditd}}]\nplaceholders: {Admins: root}\n"
    )
    (tmp_path / "values.yml").write_text("Admins: [ada, eve]\n")
    refused = rules("import", "rule.yml", "-o", "table")
    assert refused.code == 1
    assert "rule.yml:4: The field 'user' of 't' asks for the placeholder %Admins%, which has no values" in refused.err
    assert rules("import", "rule.yml", "--mapping", "mapping.yml").code == 0
    shown = rules("show", "a").out
    assert "log_type is 'auditd'" in shown
    assert "user is 'root'" in shown
    assert rules("import", "rule.yml", "--placeholders", "values.yml").code == 0
    assert "user is one of 'ada', 'eve'" in rules("show", "a").out


def test_an_import_tells_of_which_rules_a_filter_of_sigma_became_a_part(rules: Rules, tmp_path: Path) -> None:
    source = "logsource: {product: linux}\n"
    (tmp_path / "rule.yml").write_text(f"title: t\nid: a\n{source}detection: {{s: {{A: x}}, condition: s}}\n")
    (tmp_path / "filter.yml").write_text(
        f"title: Ours\n{source}filter: {{rules: [a, gone], s: {{User: us}}, condition: not s}}\n"
    )
    done = rules("import", "rule.yml", "filter.yml", "-o", "table")
    assert done.code == 5
    assert "filter.yml:1: the filter 'Ours' is part of the rule a\n" in done.err
    assert "filter.yml:3: No rule 'gone' was read with the filter." in done.err
    told = rules("import", "rule.yml", "filter.yml", "-o", "json").json()["filters"]
    assert [(one["title"], one["line"], one["rules"]) for one in told] == [("Ours", 1, ["a"])]
    shown = rules("show", "a").out
    assert "filters  Ours" in shown
    assert "User is 'us'" in shown


def test_an_import_that_brings_nothing_is_refused_and_publishes_nothing(filled: Rules, tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("{rule: two}")
    assert filled("import", "bad.yml").code == 1
    assert filled("import").code == 2
    assert filled("import", "gone").code == 1
    assert len(filled("versions", "-o", "json").json()) == 1


def test_names_of_files_that_are_no_text_are_told_as_far_as_they_are(filled: Rules, tmp_path: Path) -> None:
    strange = tmp_path / os.fsdecode(b"r\xff.yml")
    strange.write_text("- {rule: two}\n- {rule: three, when: {x: 1}}")
    told = filled("import", str(strange), "-o", "json")
    assert (told.code, told.json()["added"]) == (5, ["three"])
    assert filled("versions").code == 0


def test_an_import_has_rules_count_in_sliding_windows_where_they_can(rules: Rules, tmp_path: Path) -> None:
    (tmp_path / "some.yml").write_text(
        "- {rule: burst, when: {x: 1}, count: {by: Ip, within: 10 min, at least: 5}}\n"
        "- {rule: few, when: {x: 1}, count: {by: Ip, within: 10 min, at least: 1, at most: 5}}\n"
    )
    rules("import", str(tmp_path / "some.yml"), "--windows", "sliding")
    listed = {row["rule"]: row["statistics"] for row in rules("list", "-o", "json").json()}
    assert listed == {
        "burst": "sliding events by Ip within 10 min: at least 5",
        "few": "events by Ip within 10 min: at least 1 and at most 5",
    }


def test_a_dry_run_changes_nothing(rules: Rules, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    assert rules("import", "rules.yml", "--dry-run", "-o", "json").json()["added"] == ["shell", "logon_failed", "burst"]
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((), ["shell", "logon_failed", "burst"]),
        (("A SHELL",), ["shell"]),
        (("--level", "high", "--level", "low"), ["shell", "logon_failed"]),
        (("--tag", "attack.*"), ["shell"]),
        (("--kind", "sigma"), []),
        (("--disabled",), ["burst"]),
        (("--enabled",), ["shell", "logon_failed"]),
    ],
)
def test_rules_are_listed_by_what_is_said_of_them(filled: Rules, arguments: tuple[str, ...], names: list[str]) -> None:
    filled("disable", "burst")
    assert [row["rule"] for row in filled("list", *arguments, "-o", "json").json()] == names


def test_a_rule_is_shown_with_its_text_its_condition_and_what_was_noted(filled: Rules, tmp_path: Path) -> None:
    RuleNotes(tmp_path / "store").add(WorkNote("alerts", 1, 5, 10, {"shell": 3}))
    RuleNotes(tmp_path / "store").add(QuarantineNote("shell", 1, "took 40 s"))
    shown = filled("show", "she").out
    for words in ("A shell", "attack.t1059", "├─ EventID is one of 1, 4688", "- rule: shell", "took 40 s"):
        assert words in shown
    told = filled("show", "shell", "-o", "json").json()
    assert (told["hits"], told["level"], len(told["atoms"])) == (3, "high", 4)
    assert filled("show", "burst").out.count("events of logon_failed by Ip within 10 min: at least 5") == 1


@pytest.mark.parametrize("way", [(), ("--plain",)])
def test_rules_are_tested_on_a_file_plainly_and_by_the_stage(filled: Rules, way: tuple[str, ...]) -> None:
    if not way:
        pytest.importorskip("pyarrow")
    done = filled("test", "--events", "events.jsonl", "-o", "json", *way)
    assert done.code == 0
    assert [(row["rule"], row["hits"], row["first"]) for row in done.json()] == [
        ("logon_failed", 2, "line 3"),
        ("burst", 2, "line 3"),
        ("shell", 1, "line 1"),
    ]
    assert "4 events, 3 rules, 5 hits of 3 rules" in done.err


def test_rules_are_tested_on_packed_events_and_on_standard_input(filled: Rules, tmp_path: Path) -> None:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    content = (tmp_path / "events.jsonl").read_bytes()
    (tmp_path / "events.jsonl.zst").write_bytes(zstd.compress(content[:200]) + zstd.compress(content[200:]))
    packed = filled("test", "shell", "--plain", "--events", "events.jsonl.zst", "-o", "json").json()
    piped = filled("test", "shell", "--plain", "--events", "-", "-o", "json", stdin=content.decode()).json()
    assert packed == piped
    assert [row["hits"] for row in packed] == [1]


def test_events_that_are_no_json_are_counted_and_told_with_their_line(filled: Rules, tmp_path: Path) -> None:
    (tmp_path / "mixed.jsonl").write_text('x\n\n[1]\n{"EventID": 4625}\n')
    done = filled("test", "--plain", "--events", "mixed.jsonl", "-o", "json")
    assert done.code == 5
    assert "2 events are no JSON objects; the first is line 1." in done.err
    assert [row["hits"] for row in done.json()] == [1, 1]


@pytest.mark.parametrize("name", ["gone.jsonl", "broken.zst"])
def test_events_that_cannot_be_read_are_refused(filled: Rules, tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.zst").write_bytes(b"no zstd")
    done = filled("test", "--plain", "--events", name)
    assert done.code == 1
    assert "MS-9010" in done.err
    assert filled("test").code == 2


@pytest.mark.parametrize("way", [(), ("--plain",)])
def test_a_rule_that_raises_is_told_and_stops_no_other(filled: Rules, tmp_path: Path, way: tuple[str, ...]) -> None:
    if not way:
        pytest.importorskip("pyarrow")
    (tmp_path / "bad.yml").write_text("- {rule: bad, when: {EventID: {call: 'operator:add'}}}\n")
    assert filled("import", "bad.yml").code == 0
    done = filled("test", "--events", "events.jsonl", "-o", "json", *way)
    assert done.code == 5
    assert "bad" in done.err
    assert "TypeError" in done.err
    assert len(done.json()) == 3


def test_why_draws_the_condition_and_says_what_failed(filled: Rules, tmp_path: Path) -> None:
    fits = filled("why", "shell", "--event", "-", stdin=json.dumps(EVENTS[0]))
    assert (fits.code, "version 1: the event fits" in fits.out) == (0, True)
    (tmp_path / "one.json").write_text(json.dumps(EVENTS[1], indent=2))
    fails = filled("why", "shell", "--event", "one.json")
    assert "the event does not fit" in fails.out
    assert "It fails because of:\n  User is 'SYSTEM'" in fails.out
    told = filled("why", "shell", "--event", "one.json", "-o", "json").json()
    assert told["fits"] is False
    assert told["why"]["parts"][2]["parts"][0]["found"] == "SYSTEM"


def test_why_without_a_rule_tells_what_fits_and_what_lacks_one_part(filled: Rules) -> None:
    rows = filled("why", "--event", "-", "-o", "json", stdin=json.dumps(EVENTS[1])).json()
    assert [(row["rule"], row["fits"], row["lacks"]) for row in rows] == [("shell", False, "not User is 'SYSTEM'")]
    rows = filled("why", "--event", "-", "-o", "json", "-n", "1", stdin=json.dumps(EVENTS[2])).json()
    assert [(row["rule"], row["fits"], row["lacks"]) for row in rows] == [("logon_failed", True, None)]


@pytest.fixture
def slow(rules: Rules, tmp_path: Path) -> Rules:
    """Rules of which one does not end on the event of `hard.json`."""
    (tmp_path / "rules.yml").write_text(
        "- {rule: slow, when: {x: 1, CommandLine: {matches: '^(a+)+\\1$'}}}\n- {rule: quick, when: {x: 1}}\n"
    )
    (tmp_path / "hard.json").write_text(json.dumps({"x": 1, "CommandLine": "a" * 57 + "!"}))
    assert rules("import", "rules.yml").code == 0
    return rules


def test_why_stops_an_expression_that_does_not_end_tells_the_rest_and_the_rule(slow: Rules) -> None:
    one = slow("why", "slow", "--event", "hard.json", "-o", "table")
    assert one.code == 1
    assert "yes     x is 1" in one.out
    assert "(takes longer than 2000 ms)" in one.out
    assert "MS-9012" in one.err
    assert "The rule slow is not judged to the end: CommandLine matches" in one.err
    every = slow("why", "--event", "hard.json", "-o", "json")
    assert every.code == 1
    assert {row["rule"]: row["fits"] for row in every.json()} == {"quick": True, "slow": False}
    assert "MS-9012" in every.err


def test_rules_judged_plainly_stop_an_expression_that_does_not_end(slow: Rules) -> None:
    done = slow("test", "--events", "hard.json", "--plain", "-o", "json")
    assert done.code == 5
    assert [(row["rule"], row["hits"]) for row in done.json()] == [("quick", 1)]
    assert "The rule slow cannot be judged: CommandLine matches" in done.err
    assert "takes longer than 2000 ms" in done.err


def test_why_refuses_what_is_no_event(filled: Rules) -> None:
    assert filled("why", "shell").code == 2
    assert filled("why").code == 2
    assert "holds no JSON object" in filled("why", "shell", "--event", "-", stdin="xx").err
    assert "rules test" in filled("why", "shell", "--event", "-", stdin='{"a":1}\n{"a":2}\n').err
    assert "TOPIC/QUEUE/OFFSET" in filled("why", "shell", "--message", "events").err
    assert "MS-9007" in filled("why", "shel1", "--event", "-", stdin="{}").err


def test_rules_are_switched_off_and_on_by_patterns_and_taken_out(filled: Rules) -> None:
    assert filled("disable", "*o*", "-o", "json").json() == {
        "version": 2,
        "switched": ["logon_failed"],
        "enabled": False,
    }
    assert filled("disable", "*o*", "-o", "json").json()["version"] == 2
    assert filled("enable", "*", "-o", "json").json()["switched"] == ["logon_failed"]
    refused = filled("remove", "logon_failed")
    assert (refused.code, "'burst' counts its events" in refused.err) == (1, True)
    assert filled("remove", "burst", "logon_failed", "-o", "json").json()["rules"] == 1
    unknown = filled("enable", "shel")
    assert "Did you mean 'shell'?" in unknown.err


def test_older_versions_are_listed_and_brought_back(filled: Rules) -> None:
    filled("remove", "shell")
    assert filled("rollback", "1", "-o", "json").json() == {"version": 3, "as_in": 1, "rules": 3}
    rows = filled("versions", "-o", "json").json()
    assert [(row["version"], row["counts"], row["rules"], row["why"]) for row in rows] == [
        (3, True, 3, "as in version 1"),
        (2, False, 2, "remove shell"),
        (1, False, 3, "import rules.yml"),
    ]
    assert "MS-9006" in filled("rollback", "9").err
    assert [
        row["hits"]
        for row in filled("test", "--plain", "--version", "2", "--events", "events.jsonl", "-o", "json").json()
    ] == [2, 2]


def test_old_versions_are_forgotten_up_to_the_oldest_that_a_job_works_with(filled: Rules, tmp_path: Path) -> None:
    store = RuleStore(tmp_path / "store", files=HastyFiles())
    for _ in range(MIN_KEPT_VERSIONS + 5):
        store.publish(lambda before: switch_rules(before, {"shell"}, enabled=not before.rules[0].enabled))
    RuleNotes(tmp_path / "store").add(WorkNote("alerts", 4, 5))
    assert filled("forget", "6", "-o", "json").json() == {"forgotten": [1, 2, 3]}
    assert filled("forget", "6", "-o", "table").out == "no version could go\n"
    assert len(store.versions()) == MIN_KEPT_VERSIONS + 3


def test_a_damaged_store_names_the_file_and_is_mended_by_a_rollback(filled: Rules, tmp_path: Path) -> None:
    filled("disable", "shell")
    (tmp_path / "store" / "versions" / "2.rules").write_bytes(b"x")
    done = filled("list")
    assert done.code == 1
    assert "2.rules" in done.err
    assert "MS-9002" in done.err
    assert filled("versions").out.count("is damaged") == 1
    assert filled("rollback", "1").code == 0
    assert len(filled("list", "-o", "json").json()) == 3


def test_a_store_that_is_not_there_is_not_made_by_a_slip(rules: Rules, tmp_path: Path) -> None:
    for arguments in (("list",), ("enable", "x"), ("stats",), ("versions",), ("rollback", "1")):
        done = rules(*arguments)
        assert (done.code, "Traceback" in done.err) == (1, False), arguments
    assert not (tmp_path / "store").exists()


def test_statistics_tell_atoms_hits_and_stopped_rules(filled: Rules, tmp_path: Path) -> None:
    notes = RuleNotes(tmp_path / "store")
    notes.add(WorkNote("alerts", 1, 5, 100, {"shell": 3}, more={"cache": 0.9}))
    notes.add(QuarantineNote("shell", 1, "took 40 s", job="alerts"))
    told = filled("stats", "-o", "json").json()
    wanted = {"rules": 3, "enabled": 3, "atoms": 5, "shared_atoms": 1, "fields": 3, "events": 100, "hits": 3}
    assert {name: told[name] for name in wanted} == wanted
    assert told["by_rule"] == {"shell": 3}
    assert told["quarantined"][0]["reason"] == "took 40 s"
    assert "took 40 s" in filled("stats", "-o", "table").out


def test_commands_of_rules_start_without_spark_and_without_what_only_the_stage_needs(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    programme = (
        "import sys; from millstream.cli.main import main;"
        f"main(['rules', 'import', {str(tmp_path / 'rules.yml')!r}, '--store', {str(tmp_path / 'store')!r}]);"
        f"main(['rules', 'stats', '--store', {str(tmp_path / 'store')!r}]);"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'hyperscan', 'pandas', 'sigma'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", programme], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.fixture
def topic_rules(tmp_path: Path, millstream: Callable[..., Ran]) -> Callable[..., Any]:
    """A topic with the events, and rules commands against its server."""
    (tmp_path / "rules.yml").write_text(RULES)
    assert run("rules", "import", str(tmp_path / "rules.yml"), "--store", str(tmp_path / "store")).code == 0
    millstream("topic", "create", "events", "--queues", "1")
    for event in [*map(json.dumps, EVENTS), "no json"]:
        assert millstream("produce", "events", event).code == 0

    def command(*arguments: str) -> Ran:
        return millstream("rules", *arguments, "--store", str(tmp_path / "store"))

    return command


def test_rules_are_tested_on_a_topic_and_explained_for_a_message(topic_rules: Callable[..., Ran]) -> None:
    done = topic_rules("test", "shell", "--topic", "events", "--plain", "-o", "json")
    assert [(row["hits"], row["first"]) for row in done.json()] == [(1, "events/0/0")]
    assert "the first is events/0/4" in done.err
    assert "the event does not fit" in topic_rules("why", "shell", "--message", "events/0/1").out
    assert "no JSON object" in topic_rules("why", "shell", "--message", "events/0/4").err
    assert "There is no message" in topic_rules("why", "shell", "--message", "events/0/9").err
    assert "There is no message" in topic_rules("why", "shell", "--message", "events/7/1").err


def test_explain_tells_the_groups_what_finds_them_and_that_nothing_is_known_of_the_cache_yet(filled: Rules) -> None:
    told = filled("explain", "-o", "json").json()
    assert (told["rules"], told["cache_hit_rate"]) == (3, None)
    groups = {group["field"]: group for group in told["groups"]}
    # 4625 stands in the rule itself and in the one that counts its hits.
    assert groups["EventID"]["shared_atoms"] == 1
    assert sum(groups["Image"]["engines"].values()) == groups["Image"]["atoms"] == 2
    assert filled("explain").out.splitlines()[0].split() == ["3", "5", "1", "none", "-"]


def test_explain_tells_how_often_jobs_knew_a_value(filled: Rules, tmp_path: Path) -> None:
    for known, new in ((60, 20), (15, 5)):
        RuleNotes(tmp_path / "store").add(
            WorkNote("job", 1, 1, events=9, more={"values_known": known, "values_new": new})
        )
    assert filled("explain", "-o", "json").json()["cache_hit_rate"] == 0.75
