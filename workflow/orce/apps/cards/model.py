"""The model card of a trained confidence LLM: from the files of its run, in the hub's format.

Front matter follows the hub's model-card specification (huggingface_hub's ModelCardData), text by templates/card.j2.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from huggingface_hub import EvalResult, ModelCardData
from msgspec import UNSET, UnsetType

from orce.alignment.registry import PAPER
from orce.apps.cards import Base
from orce.artefacts import store
from orce.errors import BadInput
from orce.judging import distribution
from orce.reports import cell_metrics
from orce.reports.cell_metrics import CellMetrics
from orce.text.prompting import environment, render

TEMPLATES = Path(__file__).with_name("templates")
SPLITS = {"sft": ("sft",)}  # training splits of a stage; the others see both
BOTH = ("sft", "rl")
METRICS = {  # name in metrics.json: (name on the hub, title)
    "accuracy": ("accuracy", "Accuracy of the answers"),
    "ece": ("ece", "ECE (10 bins)"),
    "auroc": ("roc_auc", "AUROC"),
    "aurc": ("aurc", "AURC"),
    "spearman": ("spearmanr", "Spearman's rho with correctness"),
    "brier": ("brier_score", "Brier score"),
}


class Frozen(msgspec.Struct):
    """What the manifest of a split's frozen prompts says of their origin; a seal of an earlier version says less."""

    source: dict[str, Any] | UnsetType = UNSET
    task: str = ""
    origin: str = msgspec.field(name="from", default="test")
    sha256: str = ""
    n: int | str = ""

    @classmethod
    def read(cls, path: Path) -> "Frozen":
        return msgspec.convert(store.read_manifest(path), cls) if path.exists() else cls()


@dataclass
class Trained:
    """The results' record of the confidence LLM in results/DATASET/MODEL/STAGE."""

    folder: Path
    manifest: dict[str, Any]
    splits: dict[str, Frozen] = field(default_factory=dict)
    metrics: list[CellMetrics] = field(default_factory=list)  # the metrics.json files made with exactly these weights

    @property
    def dataset(self) -> str:
        return self.folder.parent.parent.name

    @property
    def model(self) -> str:
        return self.folder.parent.name

    @property
    def settings(self) -> dict[str, Any]:
        return self.manifest.get("settings", {})

    @property
    def stage(self) -> str:
        return self.manifest["stage"]

    @property
    def reward(self) -> str | None:
        """The reward that chose its pairs, if it was aligned."""
        return self.folder.name.partition("-")[2] or PAPER if self.stage == "dpo" else None


def gather(folder: Path) -> Trained:
    """Everything known about a trained folder. Raises BadInput if it is not one."""
    manifest = store.read_manifest(folder / "manifest.json") if (folder / "manifest.json").exists() else {}
    if "stage" not in manifest:
        raise BadInput(f"{folder}: no manifest.json of a training step; expected results/DATASET/MODEL/sft, dpo or ...")
    trained = Trained(folder.resolve(), manifest)
    names = (*SPLITS.get(trained.stage, BOTH), "test")
    paths = {name: trained.folder.parents[1] / "prompts" / f"{name}.manifest.json" for name in names}
    trained.splits = {name: Frozen.read(path) for name, path in paths.items() if path.exists()}
    cells = sorted(trained.folder.parents[2].glob("*/*/*/metrics.json"))
    known = (cell_metrics.read(path, current=False) for path in cells)
    trained.metrics = [one for one in known if one.provenance and manifest["sha256"] in one.provenance.inputs.values()]
    return trained


def front_matter(trained: Trained, name: str, base: Base | None, license: str, merged: bool) -> ModelCardData:
    """The card's YAML. base: the base model, if that is on the hub."""
    own = [one for one in trained.metrics if one.model == trained.model]
    hub = sorted({split.source["hub"] for split in trained.splits.values() if split.source and "hub" in split.source})
    return ModelCardData(
        license=license,
        base_model=base.hub if base else None,
        base_model_relation=("finetune" if merged else "adapter") if base else None,
        library_name="transformers" if merged else "peft",
        pipeline_tag="text-generation",
        tags=["orce", "confidence", "calibration", "uncertainty-estimation", trained.stage],
        datasets=hub or None,
        metrics=[on_hub for on_hub, _ in METRICS.values()] if own else None,
        model_name=name,
        eval_results=[result for one in own for result in _results(one, trained)] or None,
    )


def _results(metrics: CellMetrics, trained: Trained) -> list[EvalResult]:
    # Out of domain, the test prompts are in the other dataset's folder.
    path = trained.folder.parents[2] / metrics.dataset / "prompts" / "test.manifest.json"
    test = Frozen.read(path)
    source = test.source or {}
    shared = {
        "task_type": "text-generation",
        "task_name": "Verbalized confidence",
        "dataset_type": source.get("hub", metrics.dataset),
        "dataset_name": metrics.dataset,
        "dataset_config": source.get("config"),
        "dataset_split": test.origin,
        "dataset_revision": source.get("revision"),
    }
    return [
        EvalResult(metric_type=on_hub, metric_name=title, metric_value=round(number, 4), **shared)
        for key, (on_hub, title) in METRICS.items()
        if (number := metrics.values[key]) is not None
    ]


def cell(metrics: CellMetrics, key: str) -> str:
    """A metric with its interval, for the card's table."""
    number, interval = metrics.values[key], metrics.interval(key)
    if number is None:
        return "undefined"
    return f"{number:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def origin(split: Frozen) -> str:
    """Where the frozen prompts of a split come from. Never a local path, which means nothing on another machine."""
    if isinstance(source := split.source, UnsetType):
        return "not recorded"
    name = split.task
    if "hub" in source:
        config = f" ({source['config']})" if "config" in source else ""
        name = f"{source['hub']}{config}, revision {source.get('revision') or 'not pinned'}"
    elif "path" in source:
        name = f"the publisher's files of {name}"
    return f"{name}, split {split.origin}, SHA-256 {split.sha256[:12]}"


def made(trained: Trained, base: Base | None, merged: bool) -> str:
    """The start of a sentence: what the weights are and how they were trained."""
    stage = trained.stage
    how = {"sft": "supervised fine-tuning (SFT)", "dpo": "SFT and then DPO"}.get(stage, f"the method {stage}")
    over = ""
    if base is not None:
        revision = f" (revision `{base.revision}`)" if base.revision else ""
        over = f" over [{base.hub}](https://huggingface.co/{base.hub}){revision}"
    return f"{'The whole model' if merged else 'An adapter'}{over}, trained by {how}"


def format_string() -> str:
    """The confidence prompt as a format string with the fields question and answer."""
    prompt = render("confidence", question="QUESTION", answer="ANSWER").replace("{", "{{").replace("}", "}}")
    return prompt.replace("QUESTION", "{question}").replace("ANSWER", "{answer}")


def text(trained: Trained, data: ModelCardData, place: str, base: Base | None, merged: bool) -> str:
    """The whole card. place: where `score.load` and transformers find the model, a hub id or a folder."""
    recipes = [(trained.stage, trained.manifest)]
    before = trained.folder.parent / "sft" / "manifest.json"
    if trained.stage == "dpo" and before.exists():
        recipes.insert(0, ("sft", store.read_manifest(before)))
    model = trained.settings.get("model", {})
    body = (
        environment(TEMPLATES)
        .get_template("card.j2")
        .render(
            trained=trained,
            made=made(trained, base, merged),
            place=place,
            base=base,
            adapter=not merged,
            dtype=model.get("dtype", "auto"),
            template_kwargs=model.get("template_kwargs") or {},
            recipes=recipes,
            metrics=METRICS,
            cell=cell,
            origin=origin,
            prompt=format_string(),
            repr=repr,
            tokens=distribution.STATEMENT_TOKENS,
            reward=trained.reward,
        )
    )
    return f"---\n{data.to_yaml()}\n---\n\n{body}\n"
