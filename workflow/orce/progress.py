"""Progress of long steps: a line now and then on standard error, so that logs stay readable and jobs can interleave."""

import sys
import time


class Progress:
    """Counts towards `total` and prints ``[label] done/total`` at most every `every` seconds, and at the end."""

    def __init__(self, label: str, total: int, every: float = 10.0):
        self.label, self.total, self.every = label, total, every
        self.started = self.printed = time.monotonic()
        self.first = None

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = done
        if done < self.total and now - self.printed < self.every:
            return
        self.printed = now
        elapsed = now - self.started
        gained = done - self.first
        left = f", {(self.total - done) * elapsed / gained:.0f} s left" if gained and done < self.total else ""
        note = f"  {note}" if note else ""
        say(f"[{self.label}] {done}/{self.total}  {elapsed:.0f} s{left}{note}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
