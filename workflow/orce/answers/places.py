"""The hidden states that probes read, as they are stored (orce.stages.states)."""

import base64
from typing import Any

PLACES = {"question": "answers", "answer": "answers", "judge": "judge"}  # and the file that has it, states/FILE.jsonl
DEPTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the layers whose states are kept, as shares of the model's
NUMBERS, LARGEST = "<f2", 65504.0  # the numbers of a stored state, and the largest of them


def packed(state: Any) -> str:
    """A state as text: float16, little-endian, in base64."""
    import numpy as np

    return base64.b64encode(np.clip(state, -LARGEST, LARGEST).astype(NUMBERS).tobytes()).decode()


def unpacked(layers: list[str]) -> Any:
    """The states of an item at a place, [layers, size], in float32."""
    import numpy as np

    return np.stack([np.frombuffer(base64.b64decode(one), NUMBERS) for one in layers]).astype(np.float32)
