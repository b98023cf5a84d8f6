"""Sixty wrong libraries, each a line away from the right one: do the quick tests tell? `make mutants`.

A mutant is applied to a copy of workflow/orce. The tests of its part run first, the whole quick suite only if those
pass. Ends with 1 if fewer than ENOUGH are noticed, or if a line to change is not in its file exactly once: then the library
has changed, and the mutant has to follow.
"""

import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = Path("workflow") / "orce"
ENOUGH = 57


class Mutant(NamedTuple):
    """`old` becomes `new` in a file of the library; `wrong` is what that breaks; `tests` are the files that know it."""

    file: str
    tests: str
    wrong: str
    old: str
    new: str


def of(file: str, tests: str, *changes: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(file, tests, *change) for change in changes]


MUTANTS = [
    *of(
        "alignment/rewards.py", "rewards",
        ("R_SC: the new item's shift of both ranks is subtracted", "sxy_new += _above", "sxy_new -= _above"),
        ("R_SC: tied confidences get their highest rank", "2 * np.cumsum(p) - p - n,", "2 * np.cumsum(p) - n,"),
        ("R_SC: reversed", "syy_new) - _correlation(sxy, sxx, syy)", "syy_new) * -1 + _correlation(sxy, sxx, syy)"),
        ("R_SC: a new item shifts those tied with it", "- 2 * up_to + weights", "- 2 * up_to"),
        ("R_SC without generation: has the generated confidences", "spearman_marginal(reference_surrogate, reference_surrogate, c", "spearman_marginal(reference_confidence, reference_surrogate, c"),
        ("NRD: tied values get their lowest rank", 'value, "left") + np.searchsorted(ordered, value, "right")', 'value, "left") * 2'),
        ("NRD: reversed", "0.0 - np.abs(rank_c - rank_k)", "0.0 + np.abs(rank_c - rank_k)"),
        ("numeric distance: equal distances differ in the last bit", "np.round(np.abs(confidence - surrogate), 12)", "np.abs(confidence - surrogate)"),
        ("SaySelf: a wrong answer wants a high confidence", "confidence, 0.0 - confidence)", "confidence, confidence)"),
        ("RLCR: reversed", "correct - (confidence - correct)", "correct + (confidence - correct)"),
        ("the lowest reward is chosen", "= _first(rewards, shared, noise[0]), _first(-rewards,", "= _first(-rewards, shared, noise[0]), _first(rewards,"),
        ("leave-one-out leaves nothing out", "rest = np.delete(c, own), np.delete(k, own)", "rest = c, k"),
        ("ties do not go to the most frequent value", "shared = np.where(best, shared, -1)", "shared = np.where(best, 0, -1)"),
        ("ties go to the first candidate", "np.where(best, noise, -1.0).argmax", "best.argmax"),
        ("prompts that prefer nothing make pairs", "equal_rewards = ~one_value & (np.ptp(rewards, axis=1) == 0)", "equal_rewards = ~one_value & one_value"),
    ),
    *of(
        "stages/pairs.py", "rewards",
        ("the mean of the distribution is the stated value", "expected(one.logprobs) if", "one.stated if"),
        ("chosen and rejected state the same", "chosen=_turn(float(confidences[i, best]))", "chosen=_turn(float(confidences[i, worst]))"),
    ),
    *of(
        "training/dpo.py", "training",
        ("DPO: the sign of the loss", "return -logsigmoid(", "return logsigmoid("),
        ("DPO: beta ignored", "logsigmoid(beta * (gain", "logsigmoid((gain"),
        ("DPO: no reference", "gain = policy - reference", "gain = policy"),
        ("DPO: rejected is preferred", "(gain[:, 0] - gain[:, 1])).mean()\n\n", "(gain[:, 1] - gain[:, 0])).mean()\n\n"),
        ("DPO: a batch swaps chosen and rejected", "[row.chosen_ids, row.rejected_ids]", "[row.rejected_ids, row.chosen_ids]"),
        ("DPO: the reference of the other side", "[row.reference for row in rows]", "[row.reference[::-1] for row in rows]"),
    ),
    *of(
        "stages/sft.py", "training",
        ("SFT: the target is reversed", '"kappa": lambda kappa: kappa', '"kappa": lambda kappa: 1 - kappa'),
        ("SFT: the target is correctness", "target(pair.kappa)", "target(pair.correct)"),
    ),
    *of("training/sft.py", "training", ("SFT: the prompt is trained on", "[-100] * len(prompt) + completion", "prompt + completion")),
    *of(
        "llm/chat.py", "training",
        ("percents are rounded down", "100 * confidence + 0.5", "100 * confidence"),
        ("the mean is not of the renormalised distribution", "weights @ np.arange(101) / weights.sum()", "weights @ np.arange(101)"),
    ),
    *of(
        "training/tokenized_brier.py", "training",
        ("Brier: 0 percent is certainty", "torch.linspace(0, 1, 101", "torch.linspace(1, 0, 101"),
        ("Brier: absolute error", "(correct.unsqueeze(1) - stated) ** 2)", "(correct.unsqueeze(1) - stated).abs())"),
        ("Brier: q is not renormalised", "weights = logprobs.softmax(-1)", "weights = logprobs.exp()"),
    ),
    *of("judging/distribution.py", "training", ("P(7) holds P(70)", "torch.log1p(-continued.", "torch.log1p(-0 * continued.")),
    *of(
        "surrogate.py", "confidence",
        ("kappa is smoothed", "_n_right(correct) / len(correct)", "(_n_right(correct) + 1) / (len(correct) + 2)"),
        ("kappa = 1/2 shows a wrong answer", "2 * _n_right(correct) >= len(correct)", "2 * _n_right(correct) > len(correct)"),
        ("the realised answer is of the other kind", "bool(right) == take_right", "bool(right) != take_right"),
        ("the realised answer is the first", "answers[int(rng.choice(eligible))]", "answers[eligible[0]]"),
    ),
    *of(
        "stages/surrogate.py", "confidence",
        ("test prompts have a realised answer, and training prompts the greedy one", "record.split in TESTED", "record.split not in TESTED"),
        ("all prompts realise the answer at one place", 'seed_of(seed, "realised", record.id)', 'seed_of(seed, "realised")'),
    ),
    *of(
        "metrics/definitions.py", "metrics",
        ("AUROC: a tie is won", "tally.right_up_to) - wrong)", "tally.right_up_to))"),
        ("AUPR: a tie is retrieved too early", "tally.n - tally.up_to + tally.total)", "tally.n - tally.up_to + tally.right)"),
        ("Spearman: tied confidences get their highest rank", "a = 2 * np.cumsum(p, axis=1) - p - tally.n", "a = 2 * np.cumsum(p, axis=1) - tally.n"),
    ),
    *of(
        "metrics/definitions.py", "metrics",
        ("AURC: the order within a tie is lost", "slope = (errors_above * m - e * above)", "slope = (errors_above * m - e * above) * 0"),
        ("E-AURC: a small excess is none", "1 / (4 * n**2)", "1 / n"),
    ),
    *of(
        "metrics/definitions.py", "metrics",
        ("ECE: bins are closed on the left", "np.maximum(-(-percent * n_bins // 100) - 1, 0)", "np.minimum(percent * n_bins // 100, n_bins - 1)"),
        ("Brier score: absolute error", "cells.target[cells.column]) ** 2", "cells.target[cells.column]) ** 1"),
    ),
    *of(
        "metrics/resampling.py", "metrics",
        ("quantiles of another level", "[(1 - level) / 2, (1 + level) / 2]", "[1 - level, level]"),
        ("resamples of cells and not of items", "rng.multinomial(n, count / n,", "rng.multinomial(n, np.full(cells, 1 / cells),"),
    ),
    *of("metrics/resampling.py", "metrics", ("p is one-sided", "min(1.0, 2 * (smaller + 1)", "min(1.0, (smaller + 1)")),
    *of(
        "metrics/selective.py", "selective",
        ("29 % is below the threshold 0.29", "np.floor(100 * values + 1e-9)", "np.floor(100 * values)"),
        ("each start has all of delta", "delta / len(STARTS) if", "delta if"),
        ("one error is forgiven", "stats.binom.cdf(errors,", "stats.binom.cdf(errors - 1,"),
        ("a level that is spent is passed on", "if p[percent] < level else 0.0", "if p[percent] < level else carried"),
    ),
    *of(
        "tasks/examples.py", "any_data config",
        ("splits overlap", "slice(start, start + size)", "slice(0, size)"),
        ("a share is rounded up", "int(total * Fraction(asked))", "-int(-total * Fraction(asked) // 1)"),
    ),
    *of("stages/prompts.py", "any_data", ("splits are not drawn", "sorted(order[place])", "sorted(order)[place]")),
    *of(
        "artefacts/files.py", "files",
        ("a lock on a deleted file counts", "if _still_named(path, handle):", "if True:"),
    ),
    *of("runtime/process.py", "any_data", ("names run together", r'"\x1f".join', '"".join')),
    *of("stages/sample.py", "any_data", ("all prompts have one seed", '"answers", example["id"])', '"answers")')),
    *of("text/marks.py", "marks", ("the first 'Answer:' counts", "strict=False)][::-1]", "strict=False)]")),
    *of(
        "text/extract.py", "marks",
        ("a stated 1 is certainty", 'or "." not in stated or value > 1', "or value > 1"),
    ),
    *of("text/numerals.py", "marks", ("the calculation before a sentence is not looked at", "for value in results if value in part", "for value in () if value in part")),
    *of("tasks/choice.py", "marks", ("of two options the first counts", "and _several(said[0], choices)", "and False")),
    *of("tasks/choice.py", "ready_datasets", ("shuffled options keep the label of another", "[order.index(right)]", "[order[right]]")),
]  # fmt: skip


def misfits() -> list[str]:
    """Mutants whose text to change is not in the library exactly once."""
    counted = [(mutant, (ROOT / LIBRARY / mutant.file).read_text().count(mutant.old)) for mutant in MUTANTS]
    return [f"{mutant.file}: {mutant.old!r} is there {n} times" for mutant, n in counted if n != 1]


class First:
    """The first test of a session that fails, as a plugin of pytest."""

    name = ""

    def pytest_runtest_logreport(self, report):
        self.name = self.name or report.nodeid * report.failed

    pytest_collectreport = pytest_runtest_logreport


def notices(mutant: Mutant) -> str:
    """The quick test that fails with a mutant; nothing if all of them pass. For a process of its own: it imports the library."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / LIBRARY
        shutil.copytree(ROOT / LIBRARY, copy)
        changed = copy / mutant.file
        changed.write_text(changed.read_text().replace(mutant.old, mutant.new))
        known = [f"tests/test_{name}.py" for name in mutant.tests.split()]
        others = ["tests", *(f"--ignore={path}" for path in known)]
        return _failing(folder, known) or _failing(folder, others)


def passes(tests: list[str]) -> str:
    """The test that fails in the library as it is; nothing if all pass. A broken test would kill every mutant."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / LIBRARY, Path(folder) / LIBRARY)
        return _failing(folder, tests)


def _failing(folder: str, tests: list[str]) -> str:
    os.environ |= {"PYTHONPATH": str(Path(folder) / LIBRARY.parent), "OMP_NUM_THREADS": "1"}
    os.chdir(ROOT)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pythonpath = f"pythonpath={Path(folder) / LIBRARY.parent} ."
    options = ["-m", "not slow", "-x", "-q", "--tb=no", "-o", pythonpath, "-n", "0", "--basetemp", f"{folder}/tests"]
    first = First()
    code = pytest.main([*options, *tests], plugins=[first])
    return first.name or ("" if code == 0 else f"pytest ended with {code}")


def prepare() -> None:
    """Import, once for all mutants, what the tests import beside the library: most of the time of a small test."""
    trainers = ("trl.trainer.dpo_trainer", "trl.trainer.sft_trainer")
    for name in ("scipy.stats", "sklearn.metrics", "torch", "transformers", *trainers):
        importlib.import_module(name)
    assert "orce" not in sys.modules


def main(words: list[str]) -> int:
    """Try the mutants whose file or breakage has one of `words`; all of them without words."""
    if wrong := misfits():
        print("\n".join(wrong))
        return 1
    chosen = [one for one in MUTANTS if not words or any(word in f"{one.file}: {one.wrong}" for word in words)]
    started, killed = time.monotonic(), 0
    prepare()
    # Each mutant in a process that is forked from this one.
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        known = sorted({f"tests/test_{name}.py" for one in chosen for name in one.tests.split()})
        if failing := pool.apply(passes, [known]):
            print(f"{failing} fails without any mutant; repair that first")
            return 1
        for mutant, test in zip(chosen, pool.imap(notices, chosen, chunksize=1), strict=True):
            killed += bool(test)
            fate = "killed  " if test else "SURVIVED"
            print(f"{fate} {mutant.file}: {mutant.wrong} {test and f'({test})'}", flush=True)
    minutes = (time.monotonic() - started) / 60
    print(f"{killed} of {len(chosen)} mutants killed in {minutes:.1f} minutes; {ENOUGH} of {len(MUTANTS)} have to be")
    return int(len(chosen) - killed > len(MUTANTS) - ENOUGH)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
