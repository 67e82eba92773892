"""Which modules are hot, in which form they run, and what is said of it."""

from __future__ import annotations

import ast
import re
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from millstream import hot_modules
from millstream.cli.servers.doctor import of_hot_path
from millstream.cli.servers.finding import Severity
from millstream.hot_modules import HOT_MODULES, PLAIN_VARIABLE, HotPath, look_at_hot_path

ROOT = Path(__file__).parent.parent.parent


def test_every_module_with_types_beside_it_is_named_and_no_other(builder: ModuleType) -> None:
    assert list(HOT_MODULES) == builder.hot_modules()
    assert HOT_MODULES


def test_a_work_tree_runs_its_sources_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_modules, "_origins", lambda: ["x.py"] * len(HOT_MODULES))
    monkeypatch.delenv(PLAIN_VARIABLE, raising=False)
    path = look_at_hot_path(tmp_path / "build.json")
    assert path == HotPath(0, len(HOT_MODULES), "it runs from its sources, not from a wheel")


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ('{"compiled": 0, "missing": "there is no C compiler"}', "as its wheel was built, there is no C compiler"),
        ('{"compiled": 9, "missing": null}', "its wheel was compiled for another Python"),
        ("{", "what its wheel says of its build cannot be read"),
        ("[]", "what its wheel says of its build cannot be read"),
    ],
)
def test_a_plain_wheel_says_why_it_is_plain(
    report: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_modules, "_origins", lambda: ["x.py"] * len(HOT_MODULES))
    monkeypatch.delenv(PLAIN_VARIABLE, raising=False)
    (tmp_path / "build.json").write_text(report)
    assert look_at_hot_path(tmp_path / "build.json").why.startswith(why)


def test_a_plain_form_that_was_asked_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_modules, "_origins", lambda: ["x.py"] * len(HOT_MODULES))
    monkeypatch.setenv(PLAIN_VARIABLE, "1")
    assert look_at_hot_path(tmp_path).why == "MILLSTREAM_PLAIN is set"
    monkeypatch.setenv(PLAIN_VARIABLE, "0")
    assert look_at_hot_path(tmp_path / "none").why != "MILLSTREAM_PLAIN is set"


def test_the_doctor_names_the_form_and_what_to_do_about_a_plain_one() -> None:
    fast = of_hot_path(HotPath(7, 7))
    assert (fast.subject, fast.state, fast.remedy) == ("compiled hot path", Severity.OK, "")
    slow = of_hot_path(HotPath(0, 7, "as its wheel was built, there is no C compiler"))
    assert slow.state is Severity.WARNING
    assert slow.words == "runs as plain Python: as its wheel was built, there is no C compiler"
    assert "C compiler" in slow.remedy
    assert of_hot_path(HotPath(3, 7, "x")).words == "3 of 7 hot modules are compiled: x"


def test_sources_are_found_before_the_extension_modules_beside_them(tmp_path: Path) -> None:
    name = HOT_MODULES[0]
    last = name.rpartition(".")[2]
    (tmp_path / f"{last}{sysconfig.get_config_var('EXT_SUFFIX')}").touch()
    assert hot_modules.SourceFinder.find_spec(name, [str(tmp_path)]) is None
    (tmp_path / f"{last}.py").touch()
    found = hot_modules.SourceFinder.find_spec(name, [str(tmp_path)])
    assert found is not None
    assert found.origin == str(tmp_path / f"{last}.py")
    assert hot_modules.SourceFinder.find_spec("millstream.protocol", [str(tmp_path)]) is None


def test_a_typed_class_has_the_attributes_of_its_source() -> None:
    # The compiled class has no others: one that is missing is an error where the source first sets it.
    compared = 0
    declared: dict[str, set[str]] = {}
    for name in sorted(HOT_MODULES):
        declared |= typed_attributes((ROOT / "src" / Path(*name.split("."))).with_suffix(".pxd").read_text())
    for name in HOT_MODULES:
        file = ROOT / "src" / Path(*name.split("."))
        typed = typed_attributes(file.with_suffix(".pxd").read_text())
        tree = ast.parse(file.with_suffix(".py").read_text())
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        assert typed.keys() <= classes.keys()
        for one, attributes in typed.items():
            bases = [base.id for base in classes[one].bases if isinstance(base, ast.Name)]
            inherited = set().union(*(declared.get(base, set()) for base in bases))
            assert attributes == set_attributes(classes[one]) - inherited, f"{name}.{one}"
            compared += 1
    assert compared >= 10


def typed_attributes(types: str) -> dict[str, set[str]]:
    """The attributes that each class of a `.pxd` declares."""
    found: dict[str, set[str]] = {}
    for part in re.split(r"^cdef class ", types, flags=re.MULTILINE)[1:]:
        body = re.split(r"^\S", part.partition("\n")[2], flags=re.MULTILINE)[0]
        lines = re.findall(r"^    cdef (?:public |readonly )?(?:long long|\w+) ([\w, ]+)$", body, re.MULTILINE)
        found[re.split(r"[(:]", part)[0]] = {word.strip() for line in lines for word in line.split(",")}
    return found


def set_attributes(node: ast.ClassDef) -> set[str]:
    """The attributes that a class of the source sets on itself, or names in its body for others to set."""
    named = {
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    return named | {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }
