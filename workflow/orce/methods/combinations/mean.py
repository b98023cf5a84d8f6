"""The mean of the rows' confidences."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def apply(parameters: dict[str, Any], confidences: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(confidences, float).mean(1)
