"""Settings that change the speed but not the result. They come from the environment, so that changing them reruns nothing."""

import json
import os

from orce.errors import BadInput

VARIABLE = "ORCE_SPEED"
USUAL = {"chunk": 4096, "batch_tokens": 16384, "micro_batch_tokens": 4096}


def speed(kind: str) -> dict:
    """Options of the engine (`answers`), the reader (`confidence`) or the trainers (`training`), from $ORCE_SPEED."""
    text = os.environ.get(VARIABLE, "{}")
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"${VARIABLE}: not a JSON object ({error})") from None
    if not isinstance(given, dict):
        raise BadInput(f"${VARIABLE}: expected a JSON object, found {type(given).__name__}")
    return USUAL | given.get(kind, {})
