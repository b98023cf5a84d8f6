"""An answer that the reference has in it, and how many of the samples are such."""

LABEL, KIND = "Choosing", "measured"


def state(answers, example, task):
    right = [answer for answer in answers if answer is not None and answer in str(example.get("reference"))]
    return (right or answers)[0], len(right) / len(answers)
