"""The product of the rows' confidences: high only where all are.

Of a token probability and `agreement` it is in the manner of CoCoA (Vashurin et al., 2025), which multiplies an uncertainty
from probabilities by one from the samples.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def apply(parameters: dict[str, Any], confidences: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(confidences, float).prod(1)
