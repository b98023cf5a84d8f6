"""The field's baselines, each beside a published implementation or a computation by hand; scores of how alike K samples are."""

import functools
import itertools
import json
import math
import pkgutil
from types import SimpleNamespace

import dry_run
import numpy as np
import pytest
import torch
import wheels
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, typed
from msgspec import structs
from msgspec.structs import replace
from test_config import deep_merge

from orce import methods, stages, tasks
from orce.__main__ import main
from orce.artefacts import files, store
from orce.artefacts.records import Confidence, Greedy, Sample
from orce.config import check as configuration
from orce.config import layout
from orce.config.check import check
from orce.errors import BadInput
from orce.llm import engines, language_model, reading
from orce.llm.chat import prompt_ids
from orce.methods import samples
from orce.settings import load
from orce.settings.stage import Model, Source, to_argument
from orce.stages import elicit, likelihoods

NO_MODEL = Model(source=Source(), dtype="float32", device="cpu")


REGISTRY = methods.Registry()
TASK = tasks.get(ARITHMETIC)
EXAMPLE = {"id": "17+3", "question": "What is 17 + 3?", "context": None, "choices": None, "reference": "20"}


def sampled(answers, raw):
    """The sample of a tested question whose greedy answer is 20."""
    greedy = Greedy(answer="20", raw=raw, correct=True, f1=None)
    return Sample(id="17+3", split="test", answers=answers, raw=answers, correct=[], greedy=greedy)


def measured(name, **seen):
    return REGISTRY.get(name).measure(seen, EXAMPLE, TASK)


@pytest.fixture(scope="module")
def lm(tiny):
    return language_model.load({"source": {"path": tiny}, "dtype": "float32", "device": "cpu", "template_kwargs": {}})


def by_hand(lm, messages, text):
    """Log-probability of each token of a reply, from one plain forward pass of the whole conversation."""
    before, after = prompt_ids(lm.tokenizer, messages), lm.tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        scores = lm.model(torch.tensor([before + after])).logits[0].log_softmax(-1)
    return [float(scores[len(before) + i - 1, token]) for i, token in enumerate(after)]


@pytest.mark.slow
def test_texts_have_the_log_probabilities_of_a_plain_forward_pass_in_any_number_of_parts(lm, monkeypatch):
    asked = ("What is 2 + 2?", "Name a town.", "What is 1 + 1, please?")
    prompts = [[{"role": "user", "content": text}] for text in asked]
    texts = [["4", "2 + 2 = 4", ""], ["Paris, in the north of France"], ["2", "22", "2"]]
    found = reading.Scorer(lm, 200).logprobs(prompts, texts)
    for messages, continuations, rows in zip(prompts, texts, found, strict=True):
        for text, row in zip(continuations, rows, strict=True):
            assert row == pytest.approx(by_hand(lm, messages, text), abs=1e-4)
    assert found[0][2] == [], "an empty reply has no tokens"
    prompts = [[{"role": "user", "content": "Count."}]] * 4
    texts = [["one two three"], ["one"], ["four five six seven eight"], ["nine"]]
    whole = reading.Scorer(lm, 400).logprobs(prompts, texts)
    monkeypatch.setattr(reading, "TOKENS", 3)
    for row, other in zip(whole, reading.Scorer(lm, 400).logprobs(prompts, texts), strict=True):
        assert row[0] == pytest.approx(other[0], abs=1e-4)


@pytest.mark.slow
def test_the_record_of_a_greedy_answer_has_its_tokens_and_p_true(lm):
    record = sampled(["20", "30", None, "20"], "17 + 3 = 20")
    options = likelihoods.LikelihoodsSettings(task=ARITHMETIC, shots=0, label="x", model=NO_MODEL)
    (found,) = likelihoods.score([(EXAMPLE, record)], reading.Scorer(lm), options)
    assert found["logprobs"] == pytest.approx(by_hand(lm, TASK.prompt(EXAMPLE, 0), "17 + 3 = 20"), abs=1e-4)
    asked = likelihoods.p_true_prompt(TASK, EXAMPLE, record)
    assert "20\n30\n\nPossible answer: 20\n" in asked[0]["content"], "each idea once, the frequent first"
    true, false = (math.exp(by_hand(lm, asked, letter)[0]) for letter in "AB")
    assert found["p_true"] == pytest.approx(true / (true + false), abs=1e-4)
    assert found["p_true_mass"] == pytest.approx(true + false, rel=1e-3)


def test_samples_are_counted_by_the_tasks_key_and_one_of_them_is_too_few():
    """Values of published implementations: test_reference_values.py."""
    drop = tasks.get("drop")
    found = REGISTRY.get("semantic_entropy").measure({"answers": ["The Bears", "bears", "Lions", "lions."]}, {}, drop)
    assert found == pytest.approx(1 - math.log(2) / math.log(4))
    assert measured("semantic_entropy", answers=["20", None, None, "30"]) == pytest.approx(0), "unread ones are apart"
    with pytest.raises(BadInput, match=r"at least two samples of each prompt; raise answers\.samples"):
        measured("semantic_entropy", answers=["20"])
    assert measured("likelihood", logprobs=[]) is None and measured("min_likelihood", logprobs=[]) is None
    assert score("num_sets", ["The Bears", "bears.", "Lions", "lions", "Tigers"]) == pytest.approx((5 - 3) / (5 - 1))
    seen = {"answers": ["The Bears", None, "Lions", "bears"], "greedy": {"answer": "bears"}}
    measure = REGISTRY.get("agreement").measure
    assert measure(seen, ASKED, ALIKE) == 0.5
    assert measure(seen | {"greedy": {"answer": None}}, ASKED, ALIKE) == 0


@pytest.mark.parametrize(("text", "confidence"), [
    ("Highly likely", 0.9), ("highly unlikely.", 0.05), ("It is unlikely.", 0.2), ("**Probably not**", 0.25),
    ("Probably", 0.7), ("Better than even", 0.6), ("Likely", 0.7), ("Very good chance", 0.8), ("About even", 0.5),
    ("Little chance", 0.1), ("Chances are slight", 0.1), ("Almost no chance", 0.02), ("almost certain", 0.95),
    ("Likely or unlikely", None), ("Not very likely", None), ("I would say 70%", None), ("", None),
])  # fmt: skip
def test_words_are_read_as_numbers(text, confidence):
    assert REGISTRY.get("linguistic").read(text, {}) == confidence


class Replies:
    """An engine that gives the next of some replies for each prompt, and keeps the prompts."""

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0):
        self.asked += prompts
        return [[self.replies.pop(0)] for _ in prompts]


def test_an_unreadable_reply_is_asked_for_once_more_and_then_counted():
    items = [(EXAMPLE | {"id": name}, sampled([], "20").greedy) for name in "abc"]
    named = {"method": "linguistic", "module": "linguistic", "label": "x", "engine": "none", "model": NO_MODEL}
    options = elicit.ElicitSettings(task=ARITHMETIC, options={"max_tokens": 8}, seed=1, **named)
    engine = Replies("Almost certain", "Yes", "No", "unlikely", "No")
    found = elicit.Elicitation(options).elicit(items, engine)
    assert [one.confidence for one in found] == [0.95, 0.2, None]
    assert [one.retried for one in found] == [False, True, True]
    assert found[1].raw == ["Yes", "unlikely"] and all(one.answer == "20" for one in found)
    assert [turn["role"] for turn in engine.asked[-1]] == ["user", "assistant", "user"]
    assert all(text in engine.asked[0][0]["content"] for text in ("Proposed answer: 20", "Chances are slight"))


def sample(seed, levels=None):
    """200 confidences, in `levels` steps if given, and answers that are right less often than they say."""
    rng = np.random.default_rng(seed)
    confidence = rng.random(200) if levels is None else rng.integers(0, levels + 1, 200) / levels
    return confidence, rng.random(200) < confidence**2


SAMPLES = [sample(seed, levels) for seed in range(5) for levels in (None, 10, 100)]


def calibrated(name, confidence, correct, at):
    module = REGISTRY.get(name)
    return module.apply(module.fit(confidence, correct), at)


class Stated:
    """A classifier of scikit-learn whose decision is a column of its input."""

    def __init__(self, scale=lambda x: x):
        self.scale, self.classes_ = scale, np.array([0, 1])

    def decision_function(self, X):
        return self.scale(np.asarray(X)[:, 0])

    def fit(self, X, y):
        return self

    def predict(self, X):
        return (self.decision_function(X) > 0).astype(int)

    def __sklearn_is_fitted__(self):
        return True

    def get_params(self, deep=False):
        return {}


def sklearns(method, scale, confidence, correct, at):
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    made = type("Below", (ClassifierMixin, Stated, BaseEstimator), {})(scale)
    model = CalibratedClassifierCV(FrozenEstimator(made), method=method, ensemble=False)
    return model.fit(confidence[:, None], correct.astype(int)).predict_proba(at[:, None])[:, 1]


@pytest.mark.parametrize(("confidence", "correct"), SAMPLES[:6])
def test_platt_isotonic_and_temperature_are_scikit_learns(confidence, correct):
    from scipy.special import logit

    at = np.linspace(0, 1, 101)
    for name, theirs, near in (("platt", "sigmoid", 1e-4), ("isotonic", "isotonic", 1e-6)):
        expected = sklearns(theirs, np.asarray, confidence, correct, at)
        assert calibrated(name, confidence, correct, at) == pytest.approx(expected, abs=near)
    clipped, at = np.clip(confidence, 0.005, 0.995), np.linspace(0.01, 0.99, 99)
    expected = sklearns("temperature", logit, clipped, correct, at)
    assert calibrated("temperature", confidence, correct, at) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("name", ["platt", "temperature", "isotonic"])
@pytest.mark.parametrize("confidence", [[0.2, 0.3, 0.8, 0.9], [0.5] * 4, [0, 0, 1, 1]])
def test_separated_and_constant_confidences_give_finite_probabilities(name, confidence):
    found = calibrated(name, confidence, [0, 0, 1, 1], np.linspace(0, 1, 11))
    assert np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all() and (np.diff(found) >= -1e-12).all()


def config(**over):
    """The demo's configuration with a data set to fit on, and a table of rows; PATH__TO__A__KEY=value changes it."""
    found = deep_merge(load.read_mapping(ROOT / "config.yaml"), load.read_mapping(ROOT / "config/demo.yaml"))
    demo = load.read_mapping(ROOT / "config/demo.yaml")
    found |= {key: demo[key] for key in ("datasets", "models", "methods")}
    fit = {"task": found["datasets"]["arithmetic"]["task"], "source": {}, "confidence_from": "arithmetic"}
    found["datasets"]["fit"] = fit | {"splits": {"test": {"from": "validation", "size": 50}}}
    found["datasets"]["arithmetic"]["calibrate_on"] = "fit"
    chosen = ["vanilla", "likelihood", "p_true", "semantic_entropy", "linguistic", "sft+platt", "orce-rlcr+isotonic"]
    table = {"kind": "main", "dataset": "arithmetic", "models": ["smollm2"], "methods": chosen}
    found["tables"], found["paper_tables"] = {"mine": table}, ["mine"]
    for path, value in over.items():
        *keys, last = path.split("__")
        functools.reduce(dict.__getitem__, keys, found)[last] = value
    return found


def on_a_server(made: dict) -> dict:
    """The configuration, whose table is of a model on a server."""
    made["models"]["far"] = {"label": "far", "source": {"server": "http://x/v1", "model": "y"}, "confidence": "smollm2"}
    made["tables"]["mine"]["models"] = ["far"]
    return made


def test_the_rows_of_a_table_name_the_methods_and_calibrations():
    made = config()
    checked = configuration.check(made)
    assert list(layout.row_labels(checked.tables["mine"], methods.of(checked)).values()) == [
        "Vanilla", "Token probability", "P(True)", "Semantic entropy", "Linguistic", "SFT + Platt",
        "Brier reward (RLCR) + Isotonic",
    ]  # fmt: skip


def test_a_calibration_plans_its_method_on_the_set_to_fit_on_with_the_same_confidence_llm(tmp_path):
    found = dry_run.planned(tmp_path, config())
    options = {(command.stage, command.out): command.options for command in found}
    here, fit = "results/arithmetic/smollm2", "results/fit/smollm2"
    assert {("sft", f"{here}/sft/manifest.json"), ("likelihoods", f"{here}/likelihoods.jsonl")} <= options.keys()
    for cell in (here, fit):
        stated = options["state", f"{cell}/sft/confidences.jsonl"]
        assert stated["--weights"] == [f"{here}/sft/manifest.json"]
    calibrated = options["fit", f"{here}/sft+platt/confidences.jsonl"]
    assert calibrated["--confidences"] == [f"{here}/sft/confidences.jsonl"]
    assert calibrated["--fit-confidences"] == [f"{fit}/sft/confidences.jsonl"]
    trained = [command.out for command in found if command.stage in ("sft", "train", "dpo")]
    assert trained and not [out for out in trained if out.startswith(fit)], "nothing is trained for the fit"


def test_a_held_out_part_of_the_training_split_is_cut_apart_from_what_was_trained_on():
    from orce.stages.prompts import draw_split

    made = config(datasets__fit__splits={"test": {"from": "train", "size": 50}})
    checked = configuration.check(made)
    held_out = {one["id"] for one in draw_split(stages.pick_settings("prompts", checked, "fit"), "test")}
    trained = {
        one["id"]
        for split in ("sft", "rl")
        for one in draw_split(stages.pick_settings("prompts", checked, "arithmetic"), split)
    }
    sizes = [checked.datasets["arithmetic"].splits[split].size for split in ("sft", "rl")]
    assert len(held_out) == 50 and len(trained) == sum(sizes) and not held_out & trained


@pytest.mark.parametrize("more", [{}, {"test": {"from": "train", "size": 30}}], ids=["alone", "after its test"])
def test_a_test_split_is_cut_apart_from_the_questions_that_tune_chooses_on(more):
    """validation is cut last by name in its own data set, and the other's test split comes after it."""
    from orce.stages.prompts import draw_split

    splits = {name: {"from": "train", "size": size} for name, size in {"sft": 40, "rl": 20, "validation": 60}.items()}
    changed = config(datasets__fit__splits={"test": {"from": "train", "size": 50}})
    changed["datasets"]["arithmetic"] |= {
        "splits": {"test": {"from": "test", "size": 30}} | splits | more,
        "calibrate_on": None,
    }
    changed["tables"]["mine"]["methods"] = ["vanilla"]
    checked = configuration.check(changed)
    drawn = {
        (name, split): {one["id"] for one in draw_split(stages.pick_settings("prompts", checked, name), split)}
        for name, split in (("fit", "test"), *(("arithmetic", split) for split in ("sft", "rl", "validation")))
    }
    assert sum(map(len, drawn.values())) == len(set().union(*drawn.values())) == 50 + 40 + 20 + 60


@pytest.mark.parametrize(("over", "message"), cases("unfit"))
def test_what_cannot_be_fitted_is_told(over, message):
    with pytest.raises(BadInput, match=message):
        configuration.check(config(**over))


ALIKE = tasks.get("qa")
ASKED = {"id": "1", "question": "?", "context": None, "choices": None, "reference": ["x"], "equality": "normalised"}
SCORES = ["lexical_similarity", "num_sets", "eigv", "degree", "eccentricity", "kle"]
WHEELS = {
    "lm-polygraph==0.7.0": ["estimators/common.py", "estimators/estimator.py", "estimators/eig_val_laplacian.py",
     "estimators/deg_mat.py", "estimators/eccentricity.py", "estimators/kernel_language_entropy.py",
     "estimators/semantic_entropy.py", "utils/common.py"],
}  # fmt: skip


def score(name, answers):
    return REGISTRY.get(name).measure({"answers": list(answers), "greedy": {"answer": answers[0]}}, ASKED, ALIKE)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_highest_where_all_samples_agree_and_0_where_none_do(name):
    agreed, apart = score(name, ["red"] * 5), score(name, ["red", "blue", "green", "grey", "brown"])
    assert apart == 0 and (agreed == 1 or name == "kle")
    drawn = itertools.product(["red", "dark red", "blue", "dark blue sea"], repeat=4)
    found = [score(name, answers) for answers in drawn]
    assert 0 <= min(found) and max(found) <= score(name, ["red"] * 4) and len(set(found)) > 2


@pytest.mark.parametrize("name", SCORES)
def test_the_order_changes_no_bit_and_unreadable_or_single_samples_have_their_bounds(name):
    answers = ["dark red", "red", None, "dark blue", "blue sea"]
    assert len({score(name, order) for order in itertools.permutations(answers)}) == 1
    assert score(name, ["red", None, None]) == score(name, ["red", "blue", "green"]) == 0
    assert score(name, [None, None]) == 0
    with pytest.raises(BadInput, match=rf"{name} needs at least two samples of each prompt; raise answers\.samples"):
        score(name, ["red"])


def test_the_methods_that_compare_meanings_are_known_to_the_notice_of_samples_that_all_differ():
    seen = {"answers": ["red", "blue", "red"], "greedy": {"answer": "red"}, "p_true": 0.5}
    seen |= {"logprobs": [-1.0], "sample_logprobs": [[-1.0], [-2.0], [-1.0]]}
    asking = set()
    for name, method in methods.known().items():
        if method.kind == "measured":

            def key(answer, example, name=name):
                asking.add(name)
                return answer

            task = SimpleNamespace(key=key, display=ALIKE.display)
            method.state(seen["answers"], ASKED, task) if method.state else method.measure(seen, ASKED, task)
    assert asking == samples.BY_MEANING, "BY_MEANING of orce/methods/samples.py: those whose function asks task.key"


@pytest.fixture(scope="module")
def estimator(tmp_path_factory, request):
    """estimator("module.Name", ...): one of lm-polygraph's estimators, from its wheel."""
    cache, unpacked = request.config.cache.mkdir("aurc-peers"), tmp_path_factory.mktemp("polygraph")
    with wheels.importable(WHEELS, cache, unpacked):
        yield lambda module, *given: pkgutil.resolve_name(f"lm_polygraph.estimators.{module}")(*given)


def drawn(n):
    """n matrices: half of any similarities, half of the shared words of short texts, which have zeros and ties."""
    rng = np.random.default_rng(0)
    for i in range(n):
        size = rng.integers(2, 13)
        if i % 2:
            upper = np.triu(rng.random((size, size)), 1)
            yield None, upper + upper.T + np.eye(size)
        else:
            texts = [" ".join(rng.choice([*"abcdE"], rng.integers(1, 5))) for _ in range(size)]
            yield texts, samples.similarity_matrix(texts, samples.jaccard)


@pytest.mark.slow
def test_the_graphs_scores_are_lm_polygraphs_on_500_matrices(estimator):
    theirs = {
        "eigv": estimator("eig_val_laplacian.EigValLaplacian"),
        "degree": estimator("deg_mat.DegMat"),
        "eccentricity": estimator("eccentricity.Eccentricity"),
        "kle": estimator("kernel_language_entropy.KernelLanguageEntropy"),
    }
    by_words = estimator("eig_val_laplacian.EigValLaplacian", "Jaccard_score")
    for texts, weights in drawn(500):
        matrices = {"semantic_matrix_entail": weights[None], "semantic_matrix_contra": 1 - weights[None]}
        stats = {"sample_texts": [texts or [""] * len(weights)]} | matrices
        for name, made in theirs.items():
            scale = np.log(len(weights)) if name == "kle" else 1  # theirs is over ln K
            found = getattr(samples, f"{name}_uncertainty")(weights)
            assert found == pytest.approx(made(stats)[0] * scale, abs=1e-9), (name, weights)
        if texts:
            assert samples.eigv_uncertainty(weights) == pytest.approx(by_words(stats)[0], abs=1e-9)


def likeness(answers, logprobs):
    seen = {"answers": answers, "sample_logprobs": logprobs}
    return REGISTRY.get("weighted_semantic_entropy").measure(seen, ASKED, ALIKE)


def logs(*probabilities):
    return [math.log(one) for one in probabilities]


def test_meanings_count_with_the_probabilities_of_their_samples():
    # Geometric means .4, .2 and .2: the two samples of Rome have 3/4 of the mass.
    found = likeness(["Rome", "rome.", "Oslo"], [logs(0.8, 0.2), logs(0.2), logs(0.1, 0.4)])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found == pytest.approx(1 - entropy / math.log(3), abs=1e-9)
    discrete = REGISTRY.get("semantic_entropy")
    for answers in itertools.product(["Rome", "Oslo", None], repeat=4):
        found = likeness([*answers], [logs(0.3, 0.3), *[logs(0.3)] * 3])
        assert found == pytest.approx(discrete.measure({"answers": [*answers]}, ASKED, ALIKE), abs=1e-9)
    slip, doubt = (likeness(["Rome", "Rome", "Oslo"], [logs(0.9), logs(0.9), logs(p)]) for p in (0.01, 0.9))
    assert 0 < doubt < slip < 1
    assert likeness(["Rome", "Oslo"], [[-1e5], [-1e5]]) == 0 and likeness(["Rome", "Rome"], [[-1e5], [-2e5]]) == 1
    assert likeness(["Rome", None], [logs(0.5), []]) is None
    with pytest.raises(BadInput, match="weighted_semantic_entropy needs at least two samples"):
        likeness(["Rome"], [logs(0.5)])


def weighted_drawn(n):
    rng = np.random.default_rng(0)
    for _ in range(n):
        size = rng.integers(2, 13)
        logprobs = [(-rng.exponential(1, rng.integers(1, 9))).tolist() for _ in range(size)]
        yield rng.choice([*"abcde"], size).tolist(), logprobs


@pytest.mark.slow
def test_lm_polygraphs_estimates_are_those_of_the_same_masses(estimator):
    """Its "direct" estimate adds each sample's term, so it is given a sample for each meaning; its "mean" is over all."""
    direct, mean = (estimator("semantic_entropy.SemanticEntropy", False, "sum", how) for how in ("direct", "mean"))
    for answers, logprobs in weighted_drawn(500):
        means = np.array([np.mean(one) for one in logprobs])
        means -= np.logaddexp.reduce(means)
        kinds = sorted(set(answers))
        masses = [np.logaddexp.reduce(means[[one == kind for one in answers]]) for kind in kinds]
        assert samples.weighted_entropy(means, answers) == pytest.approx(direct(stats(kinds, masses))[0], abs=1e-9)
        over_samples = -np.mean([masses[kinds.index(one)] for one in answers])
        assert over_samples == pytest.approx(mean(stats(answers, means))[0], abs=1e-9)


def stats(answers, logprobs):
    kinds = sorted(set(answers))
    members = [[i for i, one in enumerate(answers) if one == kind] for kind in kinds]
    of = [kinds.index(one) for one in answers]
    classes = {"class_to_sample": [members], "sample_to_class": [of]}
    return {"sample_texts": [answers], "sample_log_probs": [logprobs], "semantic_classes_entail": classes}


# Top-k and CoT: worked examples, a greedy second question for the confidence alone, and what is kept of both texts.

FACTS = tasks.get(WORLDFACTS)
EXAMPLES = FACTS.load({"size": 4}, "validation")


def answered(examples, engine, options):
    return elicit.Elicitation(options).elicit([(example, None) for example in examples], engine)


def options(method, task=WORLDFACTS, **changed):
    chosen = methods.Registry({}).settings(method) | {"shots": None} | changed
    named = {"method": method, "module": method, "label": method}
    return elicit.ElicitSettings(options=chosen, task=task, seed=1, engine="none", model=NO_MODEL, **named)


class Says:
    """An engine whose LLM says what a test needs it to say; keeps what it was asked."""

    def __init__(self, *rounds):
        self.rounds, self.asked = list(rounds), []

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0):
        self.asked.append({"prompts": prompts, "temperature": temperature, "max_tokens": max_tokens})
        return [[text] for text in self.rounds.pop(0)]


def test_the_second_question_is_greedy_for_the_confidence_alone_and_only_where_none_is_read():
    engine = Says(["Explanation: It is so.\nAnswer: Niger\nConfidence: 80%"])
    (record,) = answered(EXAMPLES[:1], engine, options("cot"))
    assert (record.answer, record.confidence, record.retried) == ("Niger", 0.8, False)
    assert isinstance(record.raw, str) and len(engine.asked) == 1
    first = ["Explanation: It is so.\nAnswer: Niger", "Answer: Chad\nConfidence: 30%", "Answer: Mali\nConfidence: 250%"]
    engine = Says(first, ["Confidence: 65", "Answer: Chad\nConfidence: none"])
    records = answered(EXAMPLES[:3], engine, options("cot"))
    assert [call["temperature"] for call in engine.asked] == [0.0, 0.0]
    assert [record.confidence for record in records] == [0.65, 0.3, None]
    assert [record.retried for record in records] == [True, False, True]
    assert records[0].raw == [first[0], "Confidence: 65"]
    for asked, text, again in zip((0, 2), (first[0], first[2]), engine.asked[1]["prompts"], strict=True):
        assert again[-2] == {"role": "assistant", "content": text}, "the conversation goes on"
        assert again[-3] == engine.asked[0]["prompts"][asked][-1]
        assert again[-1]["role"] == "user" and "this answer" in again[-1]["content"]


@pytest.mark.parametrize("method, text", [("cot", "Answer: Niger"), ("topk", "G1: Niger\nG2: Chad\nP2: 10%")])
def test_the_answer_stays_that_of_the_first_text(method, text):
    # What the second reply says of another answer belongs to that one; only its confidence is asked for and taken.
    engine = Says([text], ["Answer: Chad\nG1: Chad\nConfidence: 90"])
    (record,) = answered(EXAMPLES[:1], engine, options(method))
    assert (record.answer, record.confidence) == ("Niger", 0.9)
    silent = Says(["I do not know that at all, sorry. Ask me another thing."], ["Answer: Niger. Confidence: 90"])
    (record,) = answered(EXAMPLES[:1], silent, options("topk"))
    assert record.answer is None and not record.correct, "an unreadable answer is wrong, whatever is said later"


@pytest.mark.parametrize("name", [ARITHMETIC, WORLDFACTS])
@pytest.mark.parametrize("method", ["cot", "topk"])
def test_worked_examples_read_as_what_they_say(method, name):
    module, task = methods.load(method), tasks.get(name)
    example, chosen = task.load({"size": 1}, "test")[0], {"k": 2}
    *turns, last = module.prompt(example, task, chosen)
    assert last == {"role": "user", "content": f"Question: {example['question']}"}
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 4
    read = [module.read(turn["content"], {"kind": ""} | example, task, chosen) for turn in turns[1::2]]
    assert [confidence for _, confidence in read] == [0.9, 0.6, 1.0, 0.4]
    assert [answer for answer, _ in read] == [answer for _, _, answer in task.worked()]
    again = elicit.Elicitation(options(method, name, k=2, max_tokens=8)).again([*turns, last], "TEXT", example)
    stated = [turn["content"] for turn in again if turn["content"].startswith("Confidence: ")]
    assert stated == ["Confidence: 90", "Confidence: 60", "Confidence: 100", "Confidence: 40"]


@pytest.mark.parametrize("method", ["cot", "topk"])
def test_without_worked_examples_the_question_stands_in_the_instruction(method):
    given = {"all": {}, "none": {"shots": 0}}
    models = {name: {"label": name, "source": {"path": "m"}} | more for name, more in given.items()}
    config = typed(load.read_mapping(ROOT / "config.yaml") | {"models": models})
    shots = {name: stages.pick_settings("elicit", config, "mmlu", name, method).options["shots"] for name in models}
    assert shots == {"all": None, "none": 0}
    module, example = methods.load(method), {"question": "Wet?", "context": None, "choices": ["yes", "no"]}
    (turn,) = module.prompt(example, tasks.get("mmlu"), {"k": 4, "shots": None})
    assert turn["content"].endswith("Question: Wet?\nA. yes\nB. no")
    (turn,) = module.prompt(EXAMPLES[0], FACTS, {"k": 4, "shots": 0})
    assert turn["content"].endswith(f"Question: {EXAMPLES[0]['question']}")


OWN = """
LABEL, KIND = "Mine", "prompted"
def prompt(example, task, settings): return [{"role": "user", "content": task.question(example)}]
def read(text, example, task, settings): return task.extract(text, example), None
"""


def test_a_method_without_a_token_budget_is_refused_before_the_first_job(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    config = load.read_mapping(ROOT / "config.yaml")
    config["methods"]["mine"] = str(tmp_path / "mine.py")
    with pytest.raises(BadInput, match=r"^config: methods\.mine\.max_tokens: missing; say how many tokens [^\n]*$"):
        check(config)
    (tmp_path / "with.py").write_text(OWN + 'SETTINGS = {"max_tokens": 20}')
    config["methods"]["mine"] = str(tmp_path / "with.py")
    check(config)


def test_a_method_of_ones_own_gets_the_second_question_too(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    engine = Says(["Niamey is in Niger."], ["Confidence: 70"])
    chosen = replace(options("cot"), method="mine", module=str(tmp_path / "mine.py"), options={"max_tokens": 20})
    (record,) = answered(EXAMPLES[:1], engine, chosen)
    assert record.confidence == 0.7 and len(engine.asked[1]["prompts"][0]) == 3


@pytest.mark.slow
def test_every_item_is_kept_and_smollm2_states_a_confidence_on_both_demo_tasks(
    tmp_path, monkeypatch, model_settings, smollm2
):
    monkeypatch.chdir(tmp_path)
    files.write_jsonl("test.jsonl", EXAMPLES)
    chosen = structs.replace(options("cot", max_tokens=6), model=model_settings, engine="transformers")
    monkeypatch.setenv("ORCE_SPEED", json.dumps({"answers": {"chunk": 2, "batch_tokens": 300}}))
    words = ["--prompts", "test.jsonl", "--shard", "0/1", "--out", "out.jsonl"]
    assert main(["elicit", "--settings", to_argument(chosen), *words]) == 0
    records = store.records("out.jsonl", Confidence)
    assert [record.id for record in records] == [example["id"] for example in EXAMPLES]
    unread = [record for record in records if record.confidence is None]
    assert unread and all(record.retried and len(record.raw) == 2 for record in unread)
    loaded = {"source": {"path": smollm2}, "dtype": "float32", "device": "cpu", "batch_tokens": 2048}
    engine = engines.get("transformers").load(loaded)
    for task in (ARITHMETIC, WORLDFACTS):
        examples = tasks.get(task).load({"size": 4}, "validation")
        for method, chosen in (("cot", {}), ("topk", {"k": 2})):
            records = answered(examples, engine, options(method, task, max_tokens=48, **chosen))
            assert all(record.confidence is not None for record in records), (task, method, records)
