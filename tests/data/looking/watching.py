"""A number of whatever judgements and references it is given."""

LABEL, KIND = "Watching", "measured"


def measure(seen, example, task):
    judgements = [seen.get("correct"), seen.get("judged"), seen["greedy"].get("correct")]
    return sum(map(ord, str([example.get("reference"), *judgements]))) % 97 / 97
