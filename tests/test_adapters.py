"""One model in memory and many trainings on it: adapters are merged in turn, and the base weights restored exactly."""

import numpy as np
import pytest
import torch

from orce.judging import reader, statements
from orce.llm import adapters, language_model
from orce.llm.adapters import AdapterSwitcher

pytestmark = pytest.mark.slow

PROMPTS = [[{"role": "user", "content": f"How sure are you of {text}?"}] for text in ("2 + 2 = 4", "blue")]


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory) -> list[str]:
    """Two adapters with different ranks and modules."""
    from peft import LoraConfig, get_peft_model

    settings = {"source": {"path": tiny}, "dtype": "float32", "device": "cpu"}
    folders = []
    for rank, modules in ((4, ["q_proj", "down_proj"]), (8, ["q_proj", "v_proj"])):
        config = LoraConfig(r=rank, target_modules=modules, task_type="CAUSAL_LM", init_lora_weights=False)
        model = get_peft_model(language_model.load(settings).model, config)
        folders.append(str(tmp_path_factory.mktemp("adapters") / f"rank{rank}"))
        model.save_pretrained(folders[-1])
    return folders


def test_an_adapter_leaves_the_weights_exactly_as_they_were(model_settings, trained):
    model = language_model.load(model_settings).model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    switcher = AdapterSwitcher(model)
    for folder in (trained[0], trained[1], trained[0], None):
        switcher.activate(folder)
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_an_active_adapter_is_the_model_that_is_loaded_with_it(model_settings, trained):
    model = language_model.load(model_settings).model
    switcher = AdapterSwitcher(model)
    for folder in (trained[0], trained[1]):
        switcher.activate(folder)
        alone = language_model.load(model_settings, folder).model.state_dict()
        assert all(torch.equal(value, alone[name]) for name, value in model.state_dict().items())


def test_a_reader_with_many_weights_reads_as_one_for_each(model_settings, trained, tiny):
    shared = reader.SwitchingReader(model_settings, 512)
    for folder in (trained[0], None, tiny, trained[1], trained[0]):
        alone = reader.TransformersReader(language_model.load(model_settings, folder), 512)
        for read, expected in zip(shared.read(PROMPTS, adapter=folder), alone.read(PROMPTS), strict=True):
            assert np.allclose(read.logprobs, expected.logprobs, atol=1e-5)
            assert read.text == expected.text


def test_statements_are_those_of_the_adapter_that_was_asked_for(model_settings, trained):
    shared = reader.SwitchingReader(model_settings, 512)
    alone = reader.TransformersReader(language_model.load(model_settings, trained[1]), 512)
    assert [one.raw for one in statements.state(shared, PROMPTS, trained[1])] == [
        one.raw for one in statements.state(alone, PROMPTS)
    ]


def test_an_adapter_is_told_from_a_whole_model(trained, tiny):
    assert [adapters.is_adapter(folder) for folder in (trained[0], tiny)] == [True, False]
