"""pip install for the Makefile: `python envs/install.py LOG ARGUMENTS`, for a screen that a person can follow.

A line for each file that pip fetches, numbered, with the megabytes so far, and one for the unpacking. Everything that pip
says is in the file LOG, warnings included; where pip fails, its errors are shown.
"""

import re
import subprocess
import sys
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-warn-script-location"]
QUIET = ["--root-user-action=ignore", "--progress-bar=off"]
FETCHED = re.compile(
    r"\s*(?:Downloading|Using cached|Processing) (?:\S*/)?([^/\s]+?)-(\d[^-\s]*)\S*\.(?:whl|tar\.gz)(?: \(([\d.]+) (\w+)\))?"
)
MEGABYTES = {"B": 1e-6, "bytes": 1e-6, "kB": 1e-3, "MB": 1, "GB": 1e3}


def main(log: str, *arguments: str) -> int:
    """Run pip; returns its exit code."""
    command = [*PIP, *QUIET, *arguments]
    files, size = 0, 0.0
    with (
        open(log, "a", encoding="utf-8") as record,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip,
    ):
        assert pip.stdout is not None
        errors = []
        for line in pip.stdout:
            record.write(line)
            record.flush()
            if line.startswith("ERROR"):
                errors.append(line)
            elif found := FETCHED.match(line):
                name, version, amount, unit = found.groups()
                files, size = files + 1, size + float(amount or 0) * MEGABYTES.get(unit, 0)
                print(f"  {files:>3}  {size:>6.0f} MB  {name} {version}", flush=True)
            elif line.startswith("Installing collected packages:"):
                print(f"  unpacking {line.count(',') + 1} packages", flush=True)
    if pip.returncode:
        shown = "".join(errors) or "".join(Path(log).read_text(encoding="utf-8").splitlines(keepends=True)[-20:])
        print(f"{shown}pip failed; all that it said is in {log}", file=sys.stderr)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
