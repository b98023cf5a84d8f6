"""The field's baselines, each beside a published implementation or a computation by hand; scores of how alike K samples are."""

import functools
import itertools
import math
import pkgutil
from types import SimpleNamespace

import numpy as np
import pytest
import wheels
from conftest import ARITHMETIC, ROOT, WORLDFACTS, cases, on_cpu, typed
from msgspec.structs import replace
from test_config import deep_merge

from orce import methods, stages, tasks
from orce.artefacts.records import Greedy
from orce.config import check as configuration
from orce.config import layout
from orce.config.check import check
from orce.errors import BadInput
from orce.llm import engines
from orce.methods import samples
from orce.settings import load
from orce.settings.stage import Model, Source
from orce.stages import elicit
from orce.stages.prompts import draw_split

NO_MODEL = Model(source=Source(), dtype="float32", device="cpu")


REGISTRY = methods.Registry()


@pytest.mark.parametrize(("text", "confidence"), [
    ("highly unlikely.", 0.05), ("It is unlikely.", 0.2), ("**Probably not**", 0.25),
    ("Very good chance", 0.8), ("Chances are slight", 0.1), ("almost certain", 0.95),
    ("Likely or unlikely", None), ("Not very likely", None), ("I would say 70%", None), ("", None),
])  # fmt: skip
def test_words_are_read_as_numbers(text, confidence):
    assert REGISTRY.get("linguistic").read(text, {}) == confidence


def sample(seed, levels):
    """200 confidences, in `levels` steps if given, and answers that are right less often than they say."""
    rng = np.random.default_rng(seed)
    confidence = rng.random(200) if levels is None else rng.integers(0, levels + 1, 200) / levels
    return confidence, rng.random(200) < confidence**2


def calibrated(name, confidence, correct, at):
    module = REGISTRY.get(name)
    return module.apply(module.fit(confidence, correct), at)


@pytest.mark.parametrize("levels", [None, 10, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_platt_isotonic_and_temperature_are_scikit_learns(seed, levels):
    from scipy.special import expit, logit
    from sklearn.calibration import _sigmoid_calibration
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    confidence, correct = sample(seed, levels)
    at = np.linspace(0, 1, 101)
    slope, intercept = _sigmoid_calibration(confidence, correct)
    expected = expit(-(slope * at + intercept))
    assert calibrated("platt", confidence, correct, at) == pytest.approx(expected, abs=1e-4)
    expected = IsotonicRegression(out_of_bounds="clip").fit(confidence, correct).predict(at)
    assert calibrated("isotonic", confidence, correct, at) == pytest.approx(expected, abs=1e-6)
    clipped, at = np.clip(confidence, 0.005, 0.995), np.linspace(0.01, 0.99, 99)
    scaled = LogisticRegression(C=np.inf, fit_intercept=False).fit(logit(clipped)[:, None], correct)
    expected = scaled.predict_proba(logit(at)[:, None])[:, 1]
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


@pytest.mark.parametrize("more", [{}, {"test": {"from": "train", "size": 30}}], ids=["alone", "after its test"])
def test_a_test_split_is_cut_apart_from_the_questions_that_tune_chooses_on(more):
    """validation is cut last by name in its own data set, and the other's test split comes after it."""
    splits = {name: {"from": "train", "size": size} for name, size in {"sft": 40, "rl": 20, "validation": 60}.items()}
    changed = config(datasets__fit__splits={"test": {"from": "train", "size": 50}})
    changed["datasets"]["arithmetic"] |= {
        "splits": {"test": {"from": "test", "size": 30}} | splits | more,
        "calibrate_on": None,
    }
    changed["tables"]["mine"]["methods"] = ["vanilla"]
    checked = configuration.check(changed)
    asked = [("fit", "test"), *(("arithmetic", split) for split in splits)]
    settings = {name: stages.pick_settings("prompts", checked, name) for name in ("fit", "arithmetic")}
    drawn = [draw_split(settings[name], split) for name, split in asked]
    ids = [{one["id"] for one in examples} for examples in drawn]
    assert sum(map(len, ids)) == len(set().union(*ids)) == 50 + 40 + 20 + 60


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
def test_the_order_changes_no_bit_and_an_unreadable_sample_is_like_no_other(name):
    answers = ["dark red", "red", None, "dark blue", "blue sea"]
    assert len({score(name, order) for order in itertools.permutations(answers)}) == 1
    assert score(name, ["red", None, None]) == score(name, ["red", "blue", "green"]) == 0
    assert score(name, [None, None]) == 0


@pytest.mark.parametrize("name", [*SCORES, "semantic_entropy", "weighted_semantic_entropy"])
def test_one_sample_is_too_few(name):
    seen = {"answers": ["red"], "greedy": {"answer": "red"}, "sample_logprobs": [[-1.0]]}
    told = rf"{name} needs at least two samples of each prompt; raise answers\.samples"
    with pytest.raises(BadInput, match=told):
        REGISTRY.get(name).measure(seen, ASKED, ALIKE)


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
    discrete = REGISTRY.get("semantic_entropy")
    for answers in itertools.product(["Rome", "Oslo", None], repeat=4):
        found = likeness([*answers], [logs(0.3, 0.3), *[logs(0.3)] * 3])
        assert found == pytest.approx(discrete.measure({"answers": [*answers]}, ASKED, ALIKE), abs=1e-9)
    slip, doubt = (likeness(["Rome", "Rome", "Oslo"], [logs(0.9), logs(0.9), logs(p)]) for p in (0.01, 0.9))
    assert 0 < doubt < slip < 1
    assert likeness(["Rome", "Oslo"], [[-1e5], [-1e5]]) == 0 and likeness(["Rome", "Rome"], [[-1e5], [-2e5]]) == 1
    assert likeness(["Rome", None], [logs(0.5), []]) is None


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


def test_an_unreadable_word_is_asked_for_once_more_and_then_counted():
    greedy = Greedy(answer="Niger", raw="Niger", correct=True, f1=None)
    engine = Says(["Almost certain", "Yes", "No"], ["unlikely", "No"])
    asked = [(example, greedy) for example in EXAMPLES[:3]]
    found = elicit.Elicitation(options("linguistic")).elicit(asked, engine)
    assert [one.confidence for one in found] == [0.95, 0.2, None]
    assert [one.retried for one in found] == [False, True, True]
    assert found[1].raw == ["Yes", "unlikely"] and all(one.answer == "Niger" for one in found)
    first, again = (call["prompts"] for call in engine.asked)
    assert [turn["role"] for turn in again[-1]] == ["user", "assistant", "user"]
    shown = first[0][0]["content"]
    assert "Proposed answer: Niger" in shown and "Chances are slight" in shown


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
def test_smollm2_states_a_confidence_in_every_answer_on_both_demo_tasks(smollm2):
    loaded = on_cpu(path=smollm2) | {"batch_tokens": 2048}
    engine = engines.get("transformers").load(loaded)
    for task in (ARITHMETIC, WORLDFACTS):
        examples = tasks.get(task).load({"size": 4}, "validation")
        for method, chosen in (("cot", {}), ("topk", {"k": 2})):
            records = answered(examples, engine, options(method, task, max_tokens=48, **chosen))
            assert all(record.confidence is not None for record in records), (task, method, records)
