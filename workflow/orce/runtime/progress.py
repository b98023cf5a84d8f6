"""Progress of long steps on standard error: a bar on a terminal, otherwise a line every few seconds.

Under Snakemake the output is piped into a log, so jobs that run side by side stay readable.
"""

import atexit
import os
import sys
import time

BAR_EVERY = 0.1  # seconds between updates of a bar
LINE_EVERY = float(os.environ.get("ORCE_PROGRESS_SECONDS", "10"))  # seconds between lines; 0 prints every step


class Progress:
    """Counts towards `total`. On a terminal it draws a bar; elsewhere it prints ``[label] done/total`` at most every
    `every` seconds, and at the end. A first count above 0 is what an earlier, killed run had finished."""

    def __init__(self, label: str, total: int, every: float = LINE_EVERY):
        self.label, self.total = label, total
        self.bar = _Bar(label, total) if on_terminal() else None
        self.every = BAR_EVERY if self.bar else every
        self.started = self.shown = time.monotonic()
        self.first = None

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        opening = self.bar is not None and self.first is None
        if self.first is None:
            self.first = done
        if done < self.total and now - self.shown < self.every and not opening:
            return
        self.shown = now
        elapsed = now - self.started
        gained = done - self.first
        left = f", {(self.total - done) * elapsed / gained:.0f} s left" if gained and done < self.total else ""
        times = f"{elapsed:.0f} s{left}"
        if self.bar is not None:
            self.bar.draw(done, times, note)
        else:
            say(f"[{self.label}] {done}/{self.total}  {times}{'  ' if note else ''}{note}")


class _Bar:
    """One line at the foot of the terminal, drawn by `update` and not by a thread: engines fork their workers, and a
    lock that another thread holds during the fork would stay locked in them forever."""

    def __init__(self, label: str, total: int):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Display

        self.display = Display(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[times]}", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(file=sys.stderr),
            auto_refresh=False,
            redirect_stdout=False,  # standard output may be a file; what goes to standard error appears above the bar
        )
        self.task = self.display.add_task(label, total=total, times="", note="")
        self.total = total
        self.going = False

    def draw(self, done: int, times: str, note: str) -> None:
        if not self.going:
            self.going = True
            atexit.register(self.display.stop)  # after an error, the message starts on a new line
            self.display.start()
            self.display.console.show_cursor(True)  # else a killed process would leave the cursor hidden
        self.display.update(self.task, completed=done, times=times, note=note, refresh=True)
        if done >= self.total:
            self.display.stop()
            atexit.unregister(self.display.stop)
            self.going = False


def on_terminal() -> bool:
    """Whether standard error is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """The text with U+FFFD for characters that a terminal would obey: escapes, line ends, changes of direction."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def say(text: str) -> None:
    """Print to standard error. What comes from outside (a server, a model's name) can start no escape sequence."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)
