"""Every number of docs/evidence/decisive.md from evidence/items alone: ``python evidence/decisive/contrasts.py [FOLDER]``."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np

from orce.evaluation.metrics import METRICS

ITEMS, DRAWS = Path(__file__).parent.parent / "items", 10_000
MARGIN = 0.01


def aurc(confidence, correct):
    return METRICS["aurc"](confidence, correct)


def tables(folder: Path = ITEMS, draws: int = DRAWS) -> tuple[str, str]:
    """(every arm's metrics, the contrasts) as Markdown."""
    arms = ["| cell | arm | n | AUROC | AURC | E-AURC | ECE | Brier | AUROC within group |", "| --- " * 9 + "|"]
    rows = ["| cell | contrast | difference of AURC | p | Holm's p | verdict |", "| --- " * 6 + "|"]
    for path in sorted(folder.glob("*.jsonl.gz")):
        items, cell = (
            list(map(json.loads, gzip.decompress(path.read_bytes()).splitlines())),
            path.name.removesuffix(".jsonl.gz"),
        )
        right, groups = (np.array([item[key] for item in items]) for key in ("correct", "group"))
        said = {arm: np.array([item["confidences"][arm] for item in items]) for arm in items[0]["confidences"]}
        for arm in sorted(said):
            values = [METRICS[name](said[arm], right) for name in ("auroc", "aurc", "e_aurc", "ece", "brier")]
            inside = [(groups == g, (groups == g).sum()) for g in set(groups) if 0 < right[groups == g].mean() < 1]
            within = np.average(
                [METRICS["auroc"](said[arm][w], right[w]) for w, _ in inside], weights=[n for _, n in inside]
            )
            arms.append(
                f"| {cell} | {arm} | {len(right)} | " + " | ".join(f"{v:.3f}" for v in [*values, within]) + " |"
            )
        free = "sequence_probability" if "sequence_probability" in said else "agreement"
        judges = [arm for arm in ("sft_all", "ordered", "sft_probe", "orce", "soft") if arm in said]
        pairs = [(arm, "probe_judge") for arm in judges] + [("stack-best", free)] * ("stack-best" in said)
        pairs += [("probe_judge", other) for other in (free, "group_mean", "bag_of_words")]
        drawn = np.random.default_rng(0).integers(0, len(right), (draws, len(right)))
        found = []
        for a, b in pairs:
            of = np.array([aurc(said[a][i], right[i]) - aurc(said[b][i], right[i]) for i in drawn])
            p = min(1, 2 * max(1, min((of <= 0).sum(), (of >= 0).sum())) / draws)
            low, high = np.quantile(of, (0.025, 0.975))
            value = aurc(said[a], right) - aurc(said[b], right)
            found.append((p, a, b, value, low, high))
        order = sorted(range(len(judges)), key=lambda i: found[i][0])  # Holm over the trained arms, as the plan says
        adjusted = {
            i: min(1.0, max((len(judges) - r) * found[j][0] for r, j in enumerate(order[: order.index(i) + 1])))
            for i in order
        }
        for i, (p, a, b, value, low, high) in enumerate(found):
            holm = adjusted.get(i, p)
            same = "no difference that matters" if max(-low, high) < MARGIN else "open"
            verdict = "better" if high < 0 and holm < 0.05 else "worse" if low > 0 and holm < 0.05 else same
            rows.append(
                f"| {cell} | {a} - {b} | {value:+.3f} [{low:+.3f}, {high:+.3f}] | {p:.4f} | {holm:.4f} | {verdict} |"
            )
    return "\n".join(arms), "\n".join(rows)


if __name__ == "__main__":
    print("\n\n".join(tables(Path(sys.argv[1]) if sys.argv[1:] else ITEMS)))
