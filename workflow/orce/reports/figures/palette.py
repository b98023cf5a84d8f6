"""Colours, markers and line styles. The colours are Okabe and Ito's, told apart with any colour vision (Wong, Nature
Methods 8, 441, 2011); marker and line style distinguish them in black and white too."""

import zlib
from dataclasses import dataclass, replace

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#767676"

COLUMN, PAGE = 3.3, 6.9  # inches


@dataclass(frozen=True)
class Look:
    color: str
    marker: str
    dash: str | tuple

    def line(self, **more) -> dict:
        """Keyword arguments of Axes.plot."""
        return {"color": self.color, "linestyle": self.dash, **more}


LOOKS = {
    "vanilla": Look(BLACK, "s", ":"),
    "consistency": Look(ORANGE, "^", "--"),
    "topk": Look(SKY, "v", "-."),
    "cot": Look(GREEN, "D", (0, (5, 1, 1, 1, 1, 1))),
    "sft": Look(BLUE, "X", (0, (6, 2))),
    "orce": Look(VERMILLION, "o", "-"),
    "orce-nrd": Look(ORANGE, "^", "--"),
    "orce-numeric": Look(GREEN, "D", "-."),
    "orce-sayself": Look(PURPLE, "P", (0, (3, 1))),
    "orce-sc-surrogate": Look(SKY, "v", (0, (5, 1, 1, 1, 1, 1))),
    "orce-rlcr": Look(VERMILLION, "d", (0, (3, 1))),
    "orce-logscore": Look(VERMILLION, "<", "-."),
    "likelihood": Look(GREY, "H", "-"),
    "min_likelihood": Look(GREY, ">", "--"),
    "p_true": Look(BLACK, "P", "-."),
    "semantic_entropy": Look(PURPLE, "D", "-"),
    "linguistic": Look(BLUE, "v", ":"),
    "sequence_probability": Look(GREY, "<", "-."),
    "agreement": Look(ORANGE, "v", "-."),
    "lexical_similarity": Look(GREEN, "s", ":"),
    "num_sets": Look(PURPLE, "X", "--"),
    "eigv": Look(SKY, "o", "-"),
    "degree": Look(SKY, "D", "--"),
    "eccentricity": Look(SKY, "P", ":"),
    "kle": Look(PURPLE, "*", "-."),
    "probe": Look(GREEN, "^", "-"),
    "p_ik": Look(GREEN, ">", "--"),
    "probe_judge": Look(GREEN, "P", "-."),
    "token_agreement": Look(BLACK, "*", "-"),  # combined in config/field.yaml
    "mix": Look(BLACK, "h", "--"),
}
# A calibration has the colour and the marker of the method below it.
CALIBRATED = {"platt": (0, (1, 1)), "isotonic": (0, (2, 2)), "temperature": (0, (1, 3))}
# Looks of methods and rewards that are not listed: chosen by name, so that a method looks the same in every picture.
SPARE = (
    Look(GREY, "*", (0, (4, 2, 1, 2))),
    Look(GREEN, "h", (0, (2, 1))),
    Look(PURPLE, "P", (0, (3, 1))),
    Look(SKY, "p", (0, (7, 1))),
)


def look(method: str) -> Look:
    """Look of a method by its folder's name; a transferred confidence LLM (-from-MODEL) looks like the model's own."""
    below, _, calibration = method.partition("+")
    name = below.partition("-from-")[0]
    found = LOOKS.get(name) or SPARE[zlib.crc32(name.encode()) % len(SPARE)]
    return replace(found, dash=CALIBRATED.get(calibration, (0, (4, 3)))) if calibration else found
