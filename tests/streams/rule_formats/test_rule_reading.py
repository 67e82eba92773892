"""Rules from files and directories of several forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.streams.errors import RuleError
from millstream.streams.rule_formats.rule_files import MAX_FILE_BYTES, read_rule_files

OURS = "- {{rule: {name}, when: {{Image: {{ends: x}}}}}}\n"
SIGMA = """title: A shell
id: {name}
logsource: {{product: windows, category: process_creation}}
detection:
    selection: {{Image|endswith: '\\cmd.exe'}}
    condition: selection
"""


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_directory_is_read_with_all_below_it_whatever_the_form(tmp_path: Path) -> None:
    pytest.importorskip("sigma.rule")
    put(tmp_path / "b" / "one.yml", OURS.format(name="ours"))
    put(tmp_path / "a" / "two.yaml", SIGMA.format(name="sigmas"))
    put(tmp_path / "a" / "readme.txt", "no rules")
    put(tmp_path / ".git" / "x.yml", "no rules")
    found = read_rule_files([tmp_path])
    assert [(rule.id, rule.kind) for rule in found.rules] == [("sigmas", "sigma"), ("ours", "yaml")]
    assert found.refused == ()
    assert "Image" in found.paths


def test_what_cannot_be_read_is_told_and_stops_nothing(tmp_path: Path) -> None:
    put(tmp_path / "a.yml", b"- {rule: a,\n when: {x: \xff}}")
    put(tmp_path / "b.yml", "#" * (MAX_FILE_BYTES + 1))
    put(tmp_path / "c.yml", OURS.format(name="good"))
    put(tmp_path / "d.yml", "services: {web: {image: nginx}}")
    found = read_rule_files([tmp_path])
    assert [rule.id for rule in found.rules] == ["good"]
    assert [(Path(one.path).name, one.line) for one in found.refused] == [("a.yml", 2), ("b.yml", None), ("d.yml", 1)]


def test_a_broken_sigma_rule_is_told_with_its_line_and_stops_nothing(tmp_path: Path) -> None:
    pytest.importorskip("sigma.rule")
    put(tmp_path / "bad.yml", SIGMA.format(name="bad").replace("condition: selection", "condition: selektion"))
    put(tmp_path / "good.yml", SIGMA.format(name="good"))
    found = read_rule_files([tmp_path])
    assert [rule.id for rule in found.rules] == ["good"]
    [refused] = found.refused
    assert (Path(refused.path).name, refused.line) == ("bad.yml", 6)


def test_of_two_rules_with_one_id_in_two_files_the_first_is_taken(tmp_path: Path) -> None:
    first = put(tmp_path / "a.yml", OURS.format(name="same"))
    put(tmp_path / "b.yml", "\n" + OURS.format(name="same"))
    found = read_rule_files([tmp_path])
    assert len(found.rules) == 1
    [refused] = found.refused
    assert (Path(refused.path).name, refused.line) == ("b.yml", 2)
    assert str(first) in refused.reason


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    file = put(tmp_path / "a.yml", OURS.format(name="one"))
    assert not read_rule_files([file, tmp_path, file]).refused


@pytest.mark.parametrize(("place", "words"), [("gone.yml", "no file"), ("rules.txt", "none of"), ("empty", "no files")])
def test_a_place_without_rules_is_refused(tmp_path: Path, place: str, words: str) -> None:
    put(tmp_path / "rules.txt", "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RuleError, match=words) as refused:
        read_rule_files([tmp_path / place])
    assert refused.value.name == "RULE_FILE"


def test_a_directory_without_rules_stops_no_other_and_is_told(tmp_path: Path) -> None:
    good = put(tmp_path / "good" / "a.yml", OURS.format(name="one"))
    (tmp_path / "empty").mkdir()
    put(tmp_path / "notes" / "readme.txt", "no rules")
    found = read_rule_files([tmp_path / "empty", good, tmp_path / "notes"])
    assert [rule.id for rule in found.rules] == ["one"]
    assert [one.path for one in found.passed_over] == [str(tmp_path / "empty"), str(tmp_path / "notes")]
    assert "has no files of rules" in found.passed_over[0].reason


def test_where_no_directory_has_rules_the_first_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(RuleError, match=r"a has no files of rules") as refused:
        read_rule_files([tmp_path / "a", tmp_path / "b"])
    assert refused.value.name == "RULE_FILE"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yml", ""),
        ("a.yml", " \n\n"),
        ("a.yaml", "# only words\n"),
        ("a.yml", "rules: []\n"),
        ("a.yml", "[]\n"),
        ("a.sql", "-- none\n"),
    ],
)
def test_a_file_without_rules_is_told(tmp_path: Path, name: str, content: str) -> None:
    file = put(tmp_path / name, content)
    put(tmp_path / "b.yml", OURS.format(name="one"))
    put(tmp_path / "c.yml", "fields: {Image: [Image, process.executable]}\n")
    found = read_rule_files([tmp_path])
    assert [rule.id for rule in found.rules] == ["one"]
    assert [str(one) for one in found.passed_over] == [f"{file}: The file has no rule."]
    assert found.refused == ()
