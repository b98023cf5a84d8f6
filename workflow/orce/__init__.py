"""ORCE, reimplemented from the paper: order-aware alignment of the confidence that a language model
states.

orce.confidence   how sure a model is of its answers, by any method that trains nothing
orce.calibrate    from confidences to probabilities, and the threshold that bounds the error rate
orce.of_response  the confidence of an OpenAI client's response
orce.load_judge   a trained confidence LLM, for questions and answers of your own
"""

import importlib

__version__ = "0.4.0"

# Imported when they are first used: `import orce` takes no time.
_PUBLIC = {
    "confidence": "orce.apps.measure",
    "Table": "orce.apps.table",
    "calibrate": "orce.apps.calibrate",
    "Calibration": "orce.apps.calibrate",
    "of_response": "orce.apps.given",
    "load_judge": "orce.judge.judge",
}


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'orce' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
