"""SFT on its own pairs for as long as SFT and DPO together: `epochs` = theirs x their questions / SFT's questions."""

LABEL, KIND, TRAINED_ON = "SFT-long", "stated", ("sft",)


def train(pairs, settings, out):
    from orce.training import sft

    sft.train([{"prompt": pair["prompt"], "percent": int(100 * pair["kappa"] + 0.5)} for pair in pairs], settings, out)
