"""What a run leaves on disk, in bytes."""

from typing import NamedTuple

from orce.config import settings
from orce.config.graph import TRAININGS
from orce.config.schema import Config, Lora
from orce.plan.cost import flops
from orce.plan.cost.workload import Workload

BYTES_A_TOKEN = 4.5  # of generated text, with its JSON
RECORD = {"sample": 250, "elicit": 200, "candidates": 900, "state": 200}  # bytes of a line without its texts


def lora_weights(sizes: flops.Sizes, lora: Lora) -> float:
    """Weights of an adapter."""
    into = {
        "q_proj": (sizes.hidden, sizes.width),
        "k_proj": (sizes.hidden, sizes.kv_width),
        "v_proj": (sizes.hidden, sizes.kv_width),
        "o_proj": (sizes.width, sizes.hidden),
        "gate_proj": (sizes.hidden, sizes.intermediate),
        "up_proj": (sizes.hidden, sizes.intermediate),
        "down_proj": (sizes.intermediate, sizes.hidden),
    }
    layers = min(lora.last_layers or sizes.layers, sizes.layers)
    return layers * lora.r * sum(sum(into[name]) for name in lora.target_modules if name in into)


class Volumes(NamedTuple):
    """Bytes by kind: models are fetched once, trainings are in float32; checkpoints and the states of frozen layers are of
    one training at a time."""

    models: float
    trainings: float
    checkpoints: float
    texts: float
    states: float


def volume(load: Workload, config: Config) -> Volumes:
    stages = load.by_stage()
    names = {settings.base(config, load.model_of(stage)) for stage in stages}
    sizes = [load.sizes(name) for name in names if not settings.on_server(config, name)]
    models = sum(2 * (one.body + 2 * one.head) for one in sizes)
    trained = []
    for stage in stages:
        if stage.rule in TRAININGS:
            size = load.sizes(load.model_of(stage))
            whole = config.training.method == "full"
            trained.append(size.body + 2 * size.head if whole else lora_weights(size, config.training.lora))
    texts = states = 0.0
    for stage, works in stages.items():
        for work in works:
            texts += BYTES_A_TOKEN * work.generated_tokens + RECORD.get(work.rule, 0) * work.items
            if work.rule in TRAININGS and config.training.lora.last_layers and work.epochs > 1:
                hidden = load.sizes(load.model_of(stage)).hidden
                states = max(states, 2 * hidden * work.trained_tokens / work.epochs)
    return Volumes(models, 4 * sum(trained), 12 * max(trained, default=0), texts, states)
