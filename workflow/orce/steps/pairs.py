"""DPO pairs: of each prompt's candidates, the statements with the highest and the lowest reward (section 3.3).

The lines are in TRL's conversational preference format, so that other trainers can read them. Candidates that were
drawn from DPO's reference bring its log-probabilities of both statements along, under TRL's names for them.
"""

import numpy as np

from orce.alignment import rewards
from orce.answers import realised
from orce.llm.chat import expected, statement, to_percent
from orce.runtime import files
from orce.runtime.progress import say
from orce.steps import add_settings, settings

KEYS = ("id", "kappa", "correct", "confidences", "completion_logprobs", "stated", "logprobs")
# C of the reference set: one value for each record of the candidates.
REFERENCES = {"stated": lambda record: record["stated"], "mean": lambda record: expected(record["logprobs"])}


def add_arguments(parser):
    add_settings(parser)
    realised.add_arguments(parser)
    parser.add_argument("--candidates", required=True)
    parser.add_argument("--from-reference", action="store_true", help="they were drawn from the reference of DPO")
    parser.add_argument("--out", required=True)
    parser.add_argument("--manifest", required=True)


def run(args):
    options = settings(args.settings)
    data = realised.from_arguments(args, options)
    drawn = files.read_jsonl(args.candidates, KEYS)
    if [pair["id"] for pair in data] != [record["id"] for record in drawn]:
        raise files.BadInput(f"{args.candidates}: its ids are not those of {' '.join(args.prompts)}; draw it again")
    records, skipped = select(data, drawn, options)
    say(f"[{options['label']}] {len(records)} pairs of {len(data)} prompts; skipped: {skipped}")
    if args.from_reference:
        add_reference(records, drawn)
    if not records:
        stated = {record["stated"] for record in drawn}
        raise files.BadInput(
            f"{args.candidates}: no prompt gives a pair under reward {options['reward']!r} ({skipped}; the reference states "
            f"{len(stated)} distinct value(s)). The warm start says the same for every pair: give it more examples or "
            "epochs, or raise confidence.temperature"
        )
    files.write_jsonl(args.out, records)
    files.write_manifest(args.manifest, args.out, n=len(records), skipped=skipped)


def select(data: list[dict], drawn: list[dict], options: dict) -> tuple[list[dict], dict]:
    """Pair records, and how many prompts gave none, by reason."""
    confidences = np.array([record["confidences"] for record in drawn])
    scores = rewards.reward(
        options["reward"],
        confidences,
        kappa=np.array([record["kappa"] for record in drawn]),
        answer_correct=np.array([record["correct"] for record in drawn]),
        reference_confidence=np.array([REFERENCES[options["reference"]](record) for record in drawn]),
        reference_surrogate=np.array([record["kappa"] for record in drawn]),
        leave_one_out=options["leave_one_out"],
    )
    found = rewards.select_pairs(scores, confidences, options["seed"])
    records = [
        {
            "id": data[i]["id"],
            "prompt": data[i]["prompt"],
            "chosen": turn(confidences[i, best]),
            "rejected": turn(confidences[i, worst]),
            "reward_chosen": float(scores[i, best]),
            "reward_rejected": float(scores[i, worst]),
        }
        for i, best, worst in zip(found.prompt.tolist(), found.chosen, found.rejected, strict=True)
    ]
    return records, found.skipped


def add_reference(records: list[dict], drawn: list[dict]) -> None:
    """Add ref_chosen_logps and ref_rejected_logps, the log-probabilities under the model that drew the candidates."""
    known = {one["id"]: dict(zip(one["raw"], one["completion_logprobs"], strict=True)) for one in drawn}
    for record in records:
        for side in ("chosen", "rejected"):
            record[f"ref_{side}_logps"] = known[record["id"]][record[side][0]["content"]]


def turn(confidence: float) -> list[dict]:
    return [{"role": "assistant", "content": statement(to_percent(confidence))}]
