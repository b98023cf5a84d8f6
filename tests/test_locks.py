"""envs/cpu.lock and envs/gpu.lock: each package with a digest, all that the extras need, nothing that names an index."""

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = {"cpu": ("workflow", "math"), "gpu": ("gpu", "math")}  # each lock, and the extras in it


def records(lock: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Each requirement of a lock with its digests."""
    text = (ROOT / "envs" / f"{lock}.lock").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if not line.startswith("#"):
            requirement, *digests = re.split(r" +--hash=", line.strip())
            yield Requirement(requirement), digests


def locked(lock: str) -> dict[str, Version]:
    """The versions that a lock installs on this Python, by package."""
    here = (one for one, _ in records(lock) if one.marker is None or one.marker.evaluate())
    return {canonicalize_name(one.name): Version(str(one.specifier).removeprefix("==")) for one in here}


def wanted(extra: str) -> Iterator[Requirement]:
    """What an extra asks for, with what it takes from the one before it."""
    for one in map(Requirement, PROJECT["optional-dependencies"][extra]):
        if one.name == PROJECT["name"]:
            (before,) = one.extras
            yield from wanted(before)
        else:
            yield one


def pinned(path: Path) -> Iterator[Requirement]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    yield from (Requirement(line) for line in lines if line)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_one_version_and_its_digests(lock):
    found = list(records(lock))
    assert len(found) > 100
    for requirement, digests in found:
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)) and requirement.url is None, requirement
        assert digests and all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_an_index_or_a_place_of_the_machine_that_made_it(lock):
    assert not re.search(r"://|^-|/\w+/", (ROOT / "envs" / f"{lock}.lock").read_text(), re.MULTILINE)


def test_each_lock_has_its_own_build_of_torch():
    assert (locked("cpu")["torch"].local, locked("gpu")["torch"].local) == ("cpu", None)


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_the_lock_has_what_the_extras_and_the_files_of_envs_ask_for(lock, extras):
    """Otherwise: make lock."""
    versions = locked(lock)
    core = map(Requirement, PROJECT["dependencies"])
    files = [ROOT / "envs" / f"{lock}.txt", ROOT / "envs" / "no-deps.txt"]
    asked = (one for extra in extras for one in wanted(extra))
    for one in [*core, *asked, *(pin for file in files for pin in pinned(file))]:
        assert versions[canonicalize_name(one.name)] in one.specifier, f"envs/{lock}.lock: {one}"


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_is_complete(lock):
    """It is installed without requirements: whatever a package needs stands in it. Looks at the packages that are here."""
    versions = locked(lock)
    without = {canonicalize_name(one.name) for one in pinned(ROOT / "envs" / "no-deps.txt")}
    looked_at = 0
    for here in importlib.metadata.distributions():
        name = canonicalize_name(here.metadata["Name"])
        if name in without or versions.get(name) != Version(here.version):
            continue
        looked_at += 1
        for one in map(Requirement, here.requires or []):
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                assert canonicalize_name(one.name) in versions, f"{name} needs {one.name}"
    assert looked_at > 50
