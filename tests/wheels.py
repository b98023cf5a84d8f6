"""Published code and files that ours is compared with: pinned wheels, fetched once and never installed."""

import contextlib
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def fetch(pin: str, cache: Path) -> Path:
    """The wheel of `package==version` in the folder `cache`, downloaded if it is not there."""
    pattern = f"{pin.replace('-', '_').replace('==', '-')}-*.whl"
    if not list(cache.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(cache), pin]
        subprocess.run(command, check=True, timeout=300)
    (wheel,) = cache.glob(pattern)
    return wheel


def unpack(wheels: dict[str, list[str]], cache: Path, folder: Path) -> list[str]:
    """Unpack {pin: files below its package} into `folder`; the entries of sys.path that lead to all of them.

    A pin without files stays packed: Python imports from a wheel as it is.
    """
    path = [str(folder)]
    for pin, files in wheels.items():
        wheel = fetch(pin, cache)
        if files:
            package = wheel.name.partition("-")[0]
            zipfile.ZipFile(wheel).extractall(folder, [f"{package}/{file}" for file in files])
        else:
            path.append(str(wheel))
    return path


@contextlib.contextmanager
def importable(wheels: dict[str, list[str]], cache: Path, folder: Path) -> Iterator[None]:
    """In this block the packages that `unpack` leads to can be imported; after it they are forgotten."""
    packages = {pin.partition("==")[0].replace("-", "_") for pin in wheels}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*unpack(wheels, cache, folder), *sys.path])
        importlib.invalidate_caches()
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
