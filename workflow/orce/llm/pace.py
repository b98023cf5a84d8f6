"""Requests and tokens a minute: a request waits until its turn, so that no minute has more than the server allows."""

import asyncio
import time

MINUTE = 60.0


class Pace:
    """Spreads requests evenly: each takes its share of the minute, by number and by tokens (None: no limit).

    The tokens of a request are estimated before it and corrected after its reply. One Pace belongs to one job.
    """

    def __init__(self, requests: float | None, tokens: float | None):
        self.requests, self.tokens = requests, tokens
        self.free = {"requests": 0.0, "tokens": 0.0}  # time.monotonic() at which the next one may start

    async def turn(self, estimate: float) -> None:
        """Wait until a request of `estimate` tokens may start."""
        now = time.monotonic()
        start = max(now, *self.free.values())
        if self.requests:
            self.free["requests"] = start + MINUTE / self.requests
        if self.tokens:
            self.free["tokens"] = start + MINUTE * estimate / self.tokens
        await asyncio.sleep(start - now)

    def correct(self, estimate: float, counted: float) -> None:
        """Correct the estimate once the token count of the reply is known."""
        if self.tokens:
            self.free["tokens"] += MINUTE * (counted - estimate) / self.tokens
