"""What a timing was measured on."""

import os
import platform
from datetime import UTC, datetime

from orce.reports import provenance


def facts(threads: int) -> dict:
    """Processor, cores, threads, load, versions, commit and date."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": provenance.versions(),
        "commit": provenance.commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
