"""The hidden states that probes read, as they are stored (orce.stages.states)."""

import base64

import numpy as np

PLACES = {"question": "answers", "answer": "answers", "judge": "judge"}  # and the file that has it, states/FILE.jsonl
DEPTHS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the layers whose states are kept, as shares of the model's
NUMBERS = np.dtype("<f2")  # of a stored state
LARGEST = float(np.finfo(NUMBERS).max)


def packed(state: np.ndarray) -> str:
    """A state as text: float16, little-endian, in base64."""
    return base64.b64encode(np.clip(state, -LARGEST, LARGEST).astype(NUMBERS).tobytes()).decode()


def unpacked(layers: list[str]) -> np.ndarray:
    """The states of an item at a place, [layers, size], in float32."""
    return np.stack([np.frombuffer(base64.b64decode(one), NUMBERS) for one in layers]).astype(np.float32)
