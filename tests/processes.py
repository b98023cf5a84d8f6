"""The processes that a test has started, however far down, found by a mark in their environment."""

import contextlib

import psutil


def marked(mark: str, value) -> list[psutil.Process]:
    """Live processes with MARK=VALUE in their environment, orphans included."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # ended meanwhile, or another user's
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(mark) == str(value):
                found.append(process)
    return found
