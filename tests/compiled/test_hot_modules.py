"""Which modules are hot, in which form they run, and what is said of it."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from millstream import hot_modules
from millstream.cli.servers.doctor import of_hot_path
from millstream.cli.servers.finding import Severity
from millstream.hot_modules import HOT_MODULES, PLAIN_VARIABLE, HotPath, look_at_hot_path


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
