"""Documents that know their lines, and texts that are nested so deeply that reading them would end the process."""

from __future__ import annotations

import pytest
import yaml

from millstream.streams.rule_formats.sigma.documents import documents_of
from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rule_formats.yaml_document import MAX_YAML_DEPTH, line_of, read_nodes, too_deep


@pytest.mark.parametrize("piece", ["[", "{a: ", "- ", "? "])
def test_the_place_of_the_first_value_that_is_too_deep_is_told(piece: str) -> None:
    assert too_deep(f"a: 1\n---\n{piece * 50_000}") == (3, MAX_YAML_DEPTH * len(piece) + 1)


def test_a_text_of_all_levels_there_may_be_is_not_too_deep() -> None:
    assert too_deep("[" * MAX_YAML_DEPTH + "]" * MAX_YAML_DEPTH) is None
    assert too_deep(f"{'[' * 30}{']' * 30}\n---\n{'[' * 40}{']' * 40}") is None


def test_what_is_no_yaml_is_left_to_who_reads_it() -> None:
    assert too_deep("a: [1}") is None


def test_a_sigma_file_that_is_too_deep_is_a_fault() -> None:
    assert list(map(type, documents_of("detection:\n  a: " + "[" * 100_000))) == [Fault]


def test_documents_before_one_that_is_no_yaml_are_still_read() -> None:
    assert [isinstance(one, Fault) for one in documents_of("title: a\n---\ntitle: [1}\n")] == [False, True]


def test_the_line_of_a_key_is_told_or_that_of_the_last_one_that_is_there() -> None:
    (node,) = read_nodes("# first\na:\n  b:\n  - 1\n  - c: 2\n")
    assert line_of(node, ()) == (0, 2)
    assert line_of(node, ("a", "b")) == (2, 3)
    assert line_of(node, ("a", "b", 1, "c")) == (4, 5)
    assert line_of(node, ("a", "b", 2)) == (2, 3)
    assert line_of(node, ("a", "x", "y")) == (1, 2)


def test_documents_come_one_by_one_until_one_is_no_yaml() -> None:
    nodes = read_nodes("a: 1\n---\nb: [1}\n")
    assert next(nodes).start_mark.line == 0
    with pytest.raises(yaml.YAMLError):
        next(nodes)
