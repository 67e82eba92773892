"""The archive of Spark's classes: when it is made, used and thrown away, with a Java that only does as it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyspark

from millstream.streams.spark.runtime.class_archive import ClassArchive, archive_directory, find_archive
from millstream.streams.spark.runtime.java import JavaHome, make_launcher

pytestmark = pytest.mark.process


JAVA = """#!/bin/sh
for argument do
  case $argument in -XX:ArchiveClassesAtExit=*) echo classes > "${argument#*=}" ;; esac
done
printf "%s\\n" "$@"
case "$*" in *fails*) exit 3 ;; esac
"""
DRIVER = "org.apache.spark.deploy.SparkSubmit"


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A Java that prints its arguments, and writes the archive that it is asked for."""
    home = tmp_path / "my java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(JAVA)
    (home / "bin" / "java").chmod(0o755)
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    return home


@pytest.fixture
def archive(java: Path, tmp_path: Path) -> ClassArchive:
    found = find_archive(java, tmp_path / "my classes")
    assert found is not None
    return found


def run(java: Path, archive: ClassArchive | None, *arguments: str) -> tuple[int, list[str]]:
    """The exit code of what the launcher starts, and the arguments that Java got."""
    launcher = make_launcher(JavaHome(java, 17, "PATH"), archive) / "bin" / "java"
    try:
        done = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(launcher.parent.parent)
    return done.returncode, done.stdout.splitlines()


def test_the_first_driver_leaves_an_archive_that_the_next_ones_map(java: Path, archive: ClassArchive) -> None:
    assert run(java, archive, DRIVER, "a b")[1][-2:] == [DRIVER, "a b"]
    assert archive.path.read_text() == "classes\n"
    assert list(archive.path.parent.iterdir()) == [archive.path]
    code, arguments = run(java, archive, DRIVER, "fails")
    assert (code, arguments[0]) == (3, f"-XX:SharedArchiveFile={archive.path}")
    assert arguments[-2:] == [DRIVER, "fails"]


def test_a_driver_that_ends_badly_leaves_none(java: Path, archive: ClassArchive) -> None:
    assert run(java, archive, DRIVER, "fails")[0] == 3
    assert list(archive.path.parent.iterdir()) == []


def test_the_java_that_only_says_how_to_start_the_driver_neither_makes_nor_maps_one(
    java: Path, archive: ClassArchive
) -> None:
    arguments = ["-cp", "x", "org.apache.spark.launcher.Main", DRIVER]
    assert run(java, archive, *arguments) == (0, arguments)
    archive.path.touch()
    assert run(java, archive, *arguments) == (0, arguments)


def test_another_build_of_java_or_another_jar_has_another_archive(
    java: Path, archive: ClassArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_archive(java, archive.path.parent) == archive
    (java / "release").write_text('JAVA_VERSION="17.0.2"\n')
    newer = find_archive(java, archive.path.parent)
    package = tmp_path / "pyspark" / "__init__.py"
    (package.parent / "jars").mkdir(parents=True)
    monkeypatch.setattr(pyspark, "__file__", str(package))
    bare = find_archive(java, archive.path.parent)
    jar = package.parent / "jars" / "spark.jar"
    jar.touch()
    os.utime(jar, (1, 1))
    first = find_archive(java, archive.path.parent)
    os.utime(jar, (2, 2))
    assert len({archive, newer, bare, first, find_archive(java, archive.path.parent)}) == 5


def test_where_none_can_be_kept_java_starts_as_ever(java: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert find_archive(java, tmp_path / "file" / "classes") is None
    assert find_archive(java, None) is None
    (java / "lib" / "server" / "classes.jsa").unlink()
    assert find_archive(java, tmp_path) is None
    assert run(java, None, DRIVER) == (0, [DRIVER])


def test_archives_are_where_the_user_says() -> None:
    assert archive_directory({"MILLSTREAM_CLASS_ARCHIVES": "/a"}) == Path("/a")
    assert archive_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/millstream/classes")


def test_each_version_of_spark_keeps_one_archive_and_what_nobody_finished_goes(java: Path, tmp_path: Path) -> None:
    own = f"spark-{pyspark.__version__}"
    names = ("spark-old", "spark-3.9.0-a", "spark-3.9.0-b", "spark-5.0.0-a", f"{own}-a", f"{own}-b")
    for number, name in enumerate(names):
        (tmp_path / f"{name}.jsa").touch()
        os.utime(tmp_path / f"{name}.jsa", (number, number))
    (tmp_path / "spark-a.jsa.12").touch()
    os.utime(tmp_path / "spark-a.jsa.12", (1, 1))
    (tmp_path / "spark-b.jsa.13").touch()
    made = find_archive(java, tmp_path)
    assert made is not None
    assert made.path.name.startswith(own)
    left = {path.name for path in tmp_path.glob("spark-*")}
    assert left == {"spark-3.9.0-b.jsa", "spark-5.0.0-a.jsa", "spark-b.jsa.13"}
