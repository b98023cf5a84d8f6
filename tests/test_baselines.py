"""The field's baselines, each beside a published implementation or a computation by hand; scores of how alike K samples are."""

import functools
import itertools
import pkgutil
from unittest import mock

import numpy as np
import pytest
import wheels
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, on_cpu, own_config, typed

from orce import methods, stages, tasks
from orce.artefacts.records import Greedy
from orce.config import check as configuration
from orce.errors import BadInput
from orce.llm import engines
from orce.methods import samples
from orce.settings import load
from orce.settings.stage import Model, Source
from orce.stages import elicit

REGISTRY = methods.Registry()


def calibrated(name, confidence, correct, at):
    module = REGISTRY.get(name)
    return module.apply(module.fit(confidence, correct), at)


@pytest.mark.parametrize("levels", [None, 10, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_platt_isotonic_and_temperature_are_scikit_learns(seed, levels):
    """Of 200 confidences, in `levels` steps if given, and answers that are right less often than they say."""
    from scipy.special import expit, logit
    from sklearn.calibration import _sigmoid_calibration
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(seed)
    confidence = rng.random(200) if levels is None else rng.integers(0, levels + 1, 200) / levels
    correct, at = rng.random(200) < confidence**2, np.linspace(0, 1, 101)
    slope, intercept = _sigmoid_calibration(confidence, correct)
    expected = expit(-(slope * at + intercept))
    assert calibrated("platt", confidence, correct, at) == pytest.approx(expected, abs=1e-4)
    expected = IsotonicRegression(out_of_bounds="clip").fit(confidence, correct).predict(at)
    assert calibrated("isotonic", confidence, correct, at) == pytest.approx(expected, abs=1e-6)
    clipped, at = np.clip(confidence, 0.005, 0.995), np.linspace(0.01, 0.99, 99)
    scaled = LogisticRegression(C=np.inf, fit_intercept=False).fit(logit(clipped)[:, None], correct)
    expected = scaled.predict_proba(logit(at)[:, None])[:, 1]
    assert calibrated("temperature", confidence, correct, at) == pytest.approx(expected, abs=2e-3)
    assert calibrated("temperature", [0.5] * 4, [0, 1, 0, 1], 0.9) == pytest.approx(0.9), "every one is as good"


@pytest.mark.parametrize("name", ["platt", "temperature", "isotonic"])
@pytest.mark.parametrize("confidence", [[0.2, 0.3, 0.8, 0.9], [0.5] * 4, [0, 0, 1, 1]])
def test_separated_and_constant_confidences_give_finite_probabilities(name, confidence):
    found = calibrated(name, confidence, [0, 0, 1, 1], np.linspace(0, 1, 11))
    assert np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all() and (np.diff(found) >= -1e-12).all()


def config(**over):
    """The demo's configuration with a data set to fit on, and a table of rows; PATH__TO__A__KEY=value changes it."""
    demo = load.read_mapping(ROOT / "config/demo.yaml")
    chosen = ["vanilla", "likelihood", "p_true", "semantic_entropy", "linguistic", "sft+platt", "orce-rlcr+isotonic"]
    found = own_config("mine", {}, demo["models"], chosen) | {key: demo[key] for key in ("datasets", "methods")}
    found["tables"]["mine"]["dataset"] = "arithmetic"
    found["datasets"]["arithmetic"]["calibrate_on"] = "fit"
    fit = {"task": demo["datasets"]["arithmetic"]["task"], "source": {}, "confidence_from": "arithmetic"}
    found["datasets"]["fit"] = fit | {"splits": {"test": {"from": "validation", "size": 50}}}
    for path, value in over.items():
        *keys, last = path.split("__")
        functools.reduce(dict.__getitem__, keys, found)[last] = value
    return found


def on_a_server(made: dict) -> dict:
    """The configuration, whose table is of a model on a server."""
    made["models"]["far"] = {"label": "far", "source": {"server": "http://x/v1", "model": "y"}, "confidence": "smollm2"}
    made["tables"]["mine"]["models"] = ["far"]
    return made


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
    assert score(name, ["red", None, None]) == score(name, [None, None]) == 0


@pytest.mark.parametrize("name", [*SCORES, "semantic_entropy", "weighted_semantic_entropy"])
def test_one_sample_is_too_few(name):
    seen = {"answers": ["red"], "greedy": {"answer": "red"}, "sample_logprobs": [[-1.0]]}
    with pytest.raises(BadInput, match=rf"{name} needs at least two samples .*; raise answers\.samples, or --samples"):
        REGISTRY.get(name).measure(seen, ASKED, ALIKE)


def test_the_methods_that_compare_meanings_are_known_to_the_notice_of_samples_that_all_differ():
    """BY_MEANING of orce/methods/samples.py: those whose function asks task.key."""
    seen = {"answers": ["red", "blue", "red"], "greedy": {"answer": "red"}, "p_true": 0.5}
    seen |= {"logprobs": [-1.0], "sample_logprobs": [[-1.0], [-2.0], [-1.0]]}
    asking = set()
    for name, method in methods.known().items():
        if method.kind == "measured":
            task = mock.Mock(key=mock.Mock(side_effect=lambda answer, example: answer), display=ALIKE.display)
            method.state(seen["answers"], ASKED, task) if method.state else method.measure(seen, ASKED, task)
            asking |= {name} if task.key.called else set()
    assert asking == samples.BY_MEANING


@pytest.fixture(scope="module")
def estimator(tmp_path_factory, request):
    """estimator("module.Name", ...): one of lm-polygraph's estimators, from its wheel."""
    cache, unpacked = request.config.cache.mkdir("aurc-peers"), tmp_path_factory.mktemp("polygraph")
    with wheels.importable(WHEELS, cache, unpacked):
        yield lambda module, *given: pkgutil.resolve_name(f"lm_polygraph.estimators.{module}")(*given)


@pytest.mark.slow
def test_the_graphs_scores_are_lm_polygraphs_on_500_matrices(estimator):
    """Half of any similarities, half of the shared words of short texts, which have zeros and ties."""
    theirs = {
        "eigv": estimator("eig_val_laplacian.EigValLaplacian"),
        "degree": estimator("deg_mat.DegMat"),
        "eccentricity": estimator("eccentricity.Eccentricity"),
        "kle": estimator("kernel_language_entropy.KernelLanguageEntropy"),
    }
    by_words = estimator("eig_val_laplacian.EigValLaplacian", "Jaccard_score")
    rng = np.random.default_rng(0)
    for i in range(500):
        size = rng.integers(2, 13)
        if i % 2:
            texts, upper = [""] * size, np.triu(rng.random((size, size)), 1)
            weights = upper + upper.T + np.eye(size)
        else:
            texts = [" ".join(rng.choice([*"abcdE"], rng.integers(1, 5))) for _ in range(size)]
            weights = samples.similarity_matrix(texts, samples.jaccard)
        matrices = {"semantic_matrix_entail": weights[None], "semantic_matrix_contra": 1 - weights[None]}
        stats = {"sample_texts": [texts]} | matrices
        for name, made in theirs.items():
            scale = np.log(size) if name == "kle" else 1  # theirs is over ln K
            found = getattr(samples, f"{name}_uncertainty")(weights)
            assert found == pytest.approx(made(stats)[0] * scale, abs=1e-9), (name, weights)
        if i % 2 == 0:
            assert samples.eigv_uncertainty(weights) == pytest.approx(by_words(stats)[0], abs=1e-9)


def test_meanings_count_with_the_probabilities_of_their_samples():
    def likeness(answers, logprobs, name="weighted_semantic_entropy"):
        return REGISTRY.get(name).measure({"answers": answers, "sample_logprobs": logprobs}, ASKED, ALIKE)

    for answers in itertools.product(["Rome", "Oslo", None], repeat=4):
        discrete = likeness([*answers], None, "semantic_entropy")
        assert likeness([*answers], [[-1.2, -1.2], [-1.2], [-1.2], [-1.2]]) == pytest.approx(discrete, abs=1e-9)
    slip, doubt = (likeness(["Rome", "Rome", "Oslo"], [[-0.1], [-0.1], [log]]) for log in (-4.6, -0.1))
    assert 0 < doubt < slip < 1
    assert likeness(["Rome", "Oslo"], [[-1e5], [-1e5]]) == 0 and likeness(["Rome", "Rome"], [[-1e5], [-2e5]]) == 1
    assert likeness(["Rome", None], [[-0.7], []]) is None


@pytest.mark.slow
def test_lm_polygraphs_estimates_are_those_of_the_same_masses(estimator):
    """Its "direct" estimate adds each sample's term, so it is given a sample for each meaning; its "mean" is over all."""

    def stats(answers, logprobs):
        kinds = sorted(set(answers))
        members = [[i for i, one in enumerate(answers) if one == kind] for kind in kinds]
        of = [kinds.index(one) for one in answers]
        classes = {"class_to_sample": [members], "sample_to_class": [of]}
        return {"sample_texts": [answers], "sample_log_probs": [logprobs], "semantic_classes_entail": classes}

    direct, mean = (estimator("semantic_entropy.SemanticEntropy", False, "sum", how) for how in ("direct", "mean"))
    rng = np.random.default_rng(0)
    for _ in range(500):
        size = rng.integers(2, 13)
        answers = rng.choice([*"abcde"], size).tolist()
        means = np.array([-rng.exponential(1, rng.integers(1, 9)).mean() for _ in range(size)])
        means -= np.logaddexp.reduce(means)
        kinds = sorted(set(answers))
        masses = [np.logaddexp.reduce(means[[one == kind for one in answers]]) for kind in kinds]
        assert samples.weighted_entropy(means, answers) == pytest.approx(direct(stats(kinds, masses))[0], abs=1e-9)
        over_samples = -np.mean([masses[kinds.index(one)] for one in answers])
        assert over_samples == pytest.approx(mean(stats(answers, means))[0], abs=1e-9)


# Top-k and CoT: worked examples, a greedy second question for the confidence alone, and what is kept of both texts.

FACTS = tasks.get(WORLDFACTS)
EXAMPLES = FACTS.load({"size": 4}, "validation")


def answered(examples, engine, options):
    return elicit.Elicitation(options).elicit([(example, None) for example in examples], engine)


def options(method, task=WORLDFACTS, **changed):
    chosen = methods.Registry({}).settings(method) | {"shots": None} | changed
    no_model = Model(source=Source(), dtype="float32", device="cpu")
    named = {"method": method, "module": method, "label": method}
    return elicit.ElicitSettings(options=chosen, task=task, seed=1, engine="none", model=no_model, **named)


class Says:
    """An engine whose LLM says what a test needs it to say; keeps what it was asked."""

    def __init__(self, *rounds):
        self.rounds, self.asked = list(rounds), []

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0):
        self.asked.append({"prompts": prompts, "temperature": temperature, "max_tokens": max_tokens})
        return [[text] for text in self.rounds.pop(0)]


def test_an_unreadable_word_is_asked_for_once_more_and_then_counted():
    greedy = Greedy(answer="Niger", raw="Niger", correct=True, f1=None)
    engine = Says(["**Probably not**", "Yes", "Likely or unlikely", "70%"], ["It is unlikely.", "Not very likely", ""])
    found = elicit.Elicitation(options("linguistic")).elicit([(example, greedy) for example in EXAMPLES], engine)
    assert [one.confidence for one in found] == [0.25, 0.2, None, None]
    assert [one.retried for one in found] == [False, True, True, True]
    assert found[1].raw == ["Yes", "It is unlikely."] and all(one.answer == "Niger" for one in found)
    first, again = (call["prompts"] for call in engine.asked)
    assert [turn["role"] for turn in again[-1]] == ["user", "assistant", "user"]
    shown = first[0][0]["content"]
    assert "Proposed answer: Niger" in shown and "Chances are slight" in shown


def test_the_second_question_is_greedy_and_goes_on_with_the_conversation():
    first = ["Explanation: It is so.\nAnswer: Niger", "Answer: Chad\nConfidence: 30%", "Answer: Mali\nConfidence: 250%"]
    engine = Says(first, ["Answer: Chad\nG1: Chad\nConfidence: 65", "Answer: Chad\nConfidence: none"])
    records = answered(EXAMPLES[:3], engine, options("cot"))
    assert [call["temperature"] for call in engine.asked] == [0.0, 0.0]
    assert [record.confidence for record in records] == [0.65, 0.3, None]
    assert [(record.answer, record.retried) for record in records] == [("Niger", True), ("Chad", False), ("Mali", True)]
    for asked, again in zip((0, 2), engine.asked[1]["prompts"], strict=True):
        assert again[-3:-1] == [engine.asked[0]["prompts"][asked][-1], {"role": "assistant", "content": first[asked]}]
        assert again[-1]["role"] == "user" and "this answer" in again[-1]["content"]


def test_the_first_guess_stays_the_answer_and_only_a_confidence_is_taken_from_the_second_text():
    first = ["G1: Niger\nG2: Chad\nP2: 10%", "I do not know that at all, sorry. Ask me another thing."]
    again = ["Answer: Chad\nG1: Chad\nConfidence: 90", "Answer: Niger. Confidence: 90"]
    records = answered(EXAMPLES[:2], Says(first, again), options("topk"))
    assert [(record.answer, record.confidence) for record in records] == [("Niger", 0.9), (None, 0.9)]


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
    all_of_them = {"label": "M", "source": {"path": "m"}}
    models = {"all": all_of_them, "none": all_of_them | {"shots": 0}}
    config = typed(load.read_mapping(ROOT / "config.yaml") | {"models": models})
    shots = {name: stages.pick_settings("elicit", config, "mmlu", name, method).options["shots"] for name in models}
    assert shots == {"all": None, "none": 0}
    module, example = methods.load(method), {"question": "Wet?", "context": None, "choices": ["yes", "no"]}
    (turn,) = module.prompt(example, tasks.get("mmlu"), {"k": 4, "shots": None})
    assert turn["content"].endswith("Question: Wet?\nA. yes\nB. no")
    (turn,) = module.prompt(EXAMPLES[0], FACTS, {"k": 4, "shots": 0})
    assert turn["content"].endswith(f"Question: {EXAMPLES[0]['question']}")


@pytest.mark.slow
def test_smollm2_states_a_confidence_in_every_answer_on_both_demo_tasks(smollm2):
    engine = engines.get("transformers").load(on_cpu(path=smollm2) | {"batch_tokens": 2048})
    for task in (ARITHMETIC, WORLDFACTS):
        examples = tasks.get(task).load({"size": 4}, "validation")
        for method, chosen in (("cot", {}), ("topk", {"k": 2})):
            records = answered(examples, engine, options(method, task, max_tokens=48, **chosen))
            assert all(record.confidence is not None for record in records), (task, method, records)
