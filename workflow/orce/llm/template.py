"""A model's chat template: rendered the same on any day, and tried once within bounds.

A template is a program that came with the weights. jinja's sandbox keeps it from files and Python's internals, but not
from loops without end or texts that fill the memory.
"""

import os
import resource
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from orce.errors import BadInput

DATE = "26 Jul 2024"  # the date that Llama 3.1's and 3.2's own template takes where there is no clock
FORMS = ("%d %b %Y", "%d %B %Y", "%Y-%m-%d")
CPU_SECONDS, MEMORY = 3, 2**29  # of a trial; a usual template takes milliseconds and kilobytes
MEMORY_EXIT = 3
_TRIED: set[str] = set()


def render(
    tokenizer, messages: list[dict[str, str]], template_kwargs: dict[str, Any] | None = None, opens: bool = True
) -> str:
    """The text of a conversation. opens: with the start of the assistant's next turn.

    Where a template asks for today's date it gets template_kwargs' `date_string`, or DATE.
    """
    options = template_kwargs or {}
    clock = {"strftime_now": lambda form: _date(options.get("date_string", DATE)).strftime(form)}
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=opens, **(clock | options))


def _date(text: str) -> datetime:
    for form in FORMS:
        try:
            return datetime.strptime(str(text), form)
        except ValueError:
            continue
    raise ValueError(f"date_string is {text!r}, not a date such as {DATE!r}")


def trial(run: Callable[[], object], place: str, key: str) -> None:
    """Run `run`, which renders a template, in a child process. Raises BadInput if it goes beyond the limits.

    An ordinary error is left to the caller, who renders next. key: of what is rendered; it is tried once in a process.
    """
    if key in _TRIED:
        return
    child = os.fork()
    if not child:
        _run_and_exit(run)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        took = {MEMORY_EXIT: f"takes more than {MEMORY >> 20} MiB", -signal.SIGXCPU: f"takes more than {CPU_SECONDS} s"}
        reason = took.get(status, f"ends its process ({status})")
        raise BadInput(
            f"{place}: its chat template {reason} to write two turns; it may loop for ever: compare it with the template "
            "of the model's makers"
        )
    _TRIED.add(key)


def _run_and_exit(run: Callable[[], object]) -> None:
    """In the child: nothing of the parent's is flushed or cleaned up, whatever happens."""
    status = 0
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        pages = Path("/proc/self/statm")
        if pages.exists():
            limit = int(pages.read_text().split()[0]) * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        run()
    except MemoryError:
        status = MEMORY_EXIT
    finally:
        os._exit(status)  # any other error is the caller's, who will meet it again
