"""A machine that lacks what some tests need: they are skipped with one closing line, or fail where every test is asked for."""

import dataclasses
import os
import subprocess
import sys

import needs
import pytest
from conftest import ROOT


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A PATH without any program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(needs.ALL, raising=False)
    return tmp_path


def pytest_on(*arguments, **environment) -> tuple[int, list[str]]:
    """Exit code and lines of the tests of mounts and disks, five of them, on this machine."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_disk.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_the_machine_lacks_is_skipped_with_one_closing_line(bare, processes):
    code, lines = pytest_on("--numprocesses", processes)
    assert code == 0 and "5 skipped" in lines[-1]
    assert lines[-2] == (
        "5 tests skipped for want of Mounting: `.ci/run`, as root, installs mount util-linux and runs every test"
    )
    assert sum("skipped for want" in line for line in lines) == 1


def test_a_skip_is_a_failure_where_every_test_is_asked_for(bare):
    code, lines = pytest_on(ORCE_TEST_ALL="1")
    assert code == 1 and "5 errors" in lines[-1]
    assert any(
        "Mounting is not installed (util-linux mount), and ORCE_TEST_ALL asks for every test" in one for one in lines
    )


def test_ci_is_told_every_missing_package_by_a_python_that_has_none(bare):
    command = [sys.executable, "-I", "-S", ROOT / "tests" / "needs.py"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert set(said.split()) >= {"slurm-wlm", "munge", "texlive-latex-extra", "poppler-utils"}


def test_a_user_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    slurm = dataclasses.replace(needs.NEEDS["slurm"], present=lambda: True)
    assert slurm.missing() == "SLURM: tests/slurm.py starts it as root"
    assert needs.mounting()[-1] == "--map-root-user"
