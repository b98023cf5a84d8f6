"""What a configuration asks the models to compute, job by job: the input of `python -m orce plan`.

`jobs` says which jobs load a model, and how often; `works` says how many tokens each of them computes. Rules that load
no model are left out: they take seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orce import scope
from orce.config import settings
from orce.cost import flops
from orce.cost.lengths import Prompts

STATEMENT = 8  # tokens of "Confidence: 85" and its end
TREE = 16  # tokens fed for the 101 values where digits are tokens of their own; 5 where numbers are
DISTINCT = 0.5  # share of the sampled tokens that the transformers engine computes: equal beginnings once
LONGER = {"topk": 90, "cot": 60}  # tokens by which a prompted method's prompt is longer than the answer's
USED = 0.6  # of a prompted method's token budget that is generated


@dataclass(frozen=True)
class Jobs:
    """Jobs of a rule, and how often they load a model: once each, or once for every whole model that a job reads."""

    jobs: int
    loads: int


@dataclass(frozen=True)
class Work:
    """Tokens of one rule for one cell, and their FLOPs: of prompts and training (compute), of generation (decode)."""

    rule: str
    dataset: str
    model: str
    prompt_tokens: float = 0.0
    generated_tokens: float = 0.0
    trained_tokens: float = 0.0
    compute: float = 0.0
    decode: float = 0.0


def jobs(config: dict, requests: list[scope.Request]) -> dict[str, Jobs]:
    """The jobs that load a model, by rule: what the workflow's rules answer, read, warm_start, conftuner, align do."""
    flags: dict[str, set] = {"answer": set(), "read": set()}
    loads: dict[str, set] = {"answer": set(), "read": set()}
    for request in requests:
        rule = "answer" if scope.stage(request.what) == scope.ANSWERS else "read"
        whole = config["training"]["method"] == "full"  # adapters are put into one base model in turn
        weights = settings.request(config, *request).get("weights") if whole else None
        flags[rule] |= set(scope.flags(config, request))
        loads[rule] |= {(flag, weights) for flag in scope.flags(config, request)}
    found = {rule: Jobs(len(flags[rule]), len(loads[rule])) for rule in flags}
    for _, _, rule, times in trainings(config, requests):
        before = found.get(rule, Jobs(0, 0))
        found[rule] = Jobs(before.jobs + times, before.loads + times)
    return found


def trainings(config: dict, requests: list[scope.Request]) -> list[tuple[str, str, str, int]]:
    """(dataset, model, rule, times) of every training behind the requests; times: DPO rounds, else 1."""
    folders = set()
    for request in requests:
        if scope.stage(request.what) == "tests":
            folder = settings.weights(config, request.dataset, request.model, request.what)
            folders |= {folder} if folder else set()
    # What is aligned was warm-started before.
    folders |= {f"{folder.rpartition('/')[0]}/sft" for folder in folders if "/dpo" in folder}
    rules = {"sft": ("warm_start", 1), "conftuner": ("conftuner", 1)}
    cells = [folder.split("/")[1:] for folder in sorted(folders)]
    return [(data, model, *rules.get(stage, ("align", config["dpo"]["rounds"]))) for data, model, stage in cells]


class Workload:
    """The works of a configuration; `parameters` {model: number} are sizes that neither a folder nor a table tells."""

    def __init__(self, config: dict, prompts: Prompts, parameters: dict[str, float] | None = None):
        self.config, self.prompts, self.parameters = config, prompts, parameters or {}
        self.requests = scope.wanted(config, [])

    def works(self) -> Iterator[Work]:
        for request in self.requests:
            if request.what == "samples":
                for split in settings.splits(self.config, request.dataset, request.model):
                    yield self._samples(request, split)
            elif scope.stage(request.what) == scope.ANSWERS:
                yield self._asked(request)
            else:
                yield self._read(request)
        for dataset, model, rule, times in trainings(self.config, self.requests):
            yield self._training(dataset, model, rule, times)

    def _samples(self, request, split) -> Work:
        n, lengths = self._of(request.dataset, request.model, split)
        answers, batch = self.config["answers"], self.config["engine"]["batch_size"]
        tested = split == "test"  # one more answer, greedy
        transformers = self.config["engine"]["name"] == "transformers"
        prompt = lengths.answering(n, batch) * (1 + (tested and transformers))  # vllm still has them in its cache
        generated = n * (answers["samples"] * (DISTINCT if transformers else 1) + tested) * lengths.answer
        return self._answer(request, prompt, generated, n)

    def _asked(self, request) -> Work:
        n, lengths = self._of(request.dataset, request.model, "test")
        prompt = n * (lengths.answer_prompt - lengths.answer_shared + LONGER.get(request.what, 0))
        generated = n * USED * self.config["evaluation"][request.what]["max_tokens"]
        return self._answer(request, prompt, generated, n)

    def _answer(self, request, prompt, generated, n) -> Work:
        if settings.served(self.config, request.model):
            return Work("answer", request.dataset, request.model, prompt, generated)
        sizes = self.sizes(request.model)
        compute, decode = flops.forward(sizes, prompt, n), flops.forward(sizes, generated, generated)
        return Work("answer", request.dataset, request.model, prompt, generated, 0, compute, decode)

    def _read(self, request) -> Work:
        split = "test" if scope.stage(request.what) == "tests" else "rl"
        n, lengths = self._of(request.dataset, request.model, split)
        tokens = lengths.judging(n, self.config["engine"]["batch_size"]) + n * TREE
        compute = flops.forward(self.sizes(scope.weights(self.config, request)), tokens, n * TREE)
        return Work("read", request.dataset, request.model, tokens, compute=compute)

    def _training(self, dataset, model, rule, times) -> Work:
        section, splits, behind = {
            "warm_start": ("sft", ["sft"], [STATEMENT]),
            "conftuner": ("conftuner", ["sft", "rl"], [TREE]),
            "align": ("dpo", ["rl"], [STATEMENT, STATEMENT]),
        }[rule]
        stage, training = self.config[section], self.config["training"]
        sizes = self.sizes(settings.judge(self.config, model))
        tokens = asked = 0.0
        for split in splits:
            n, lengths = self._of(dataset, model, split)
            if training["shared_prefix"] or rule == "conftuner":
                tokens += lengths.judging(n, stage["micro_batch_size"]) + n * sum(behind)
            else:
                tokens += n * sum(lengths.confidence_prompt + one for one in behind)
            asked += n * sum(behind)
        compute = times * flops.train(sizes, tokens, asked, training, stage["epochs"])
        # The first round's pairs bring the reference's log-probabilities along; later rounds compute them.
        compute += (times - 1) * flops.forward(sizes, tokens, asked)
        return Work(rule, dataset, model, trained_tokens=times * stage["epochs"] * tokens, compute=compute)

    def _of(self, dataset, model, split):
        tokenizer = self._folder(model) / "tokenizer.json"
        found = tokenizer if tokenizer.exists() else None
        return (
            self.prompts.count(self.config, dataset, split),
            self.prompts.lengths(self.config, dataset, model, split, found),
        )

    def _folder(self, model) -> Path:
        """Where the model's files are, if they are here."""
        name = settings.base(self.config, model)
        return Path(self.config["models"][name]["source"].get("path") or self.prompts.results / "models" / name)

    def sizes(self, model: str) -> flops.Sizes:
        """Sizes of the weights behind a model of the config."""
        name, folder = settings.base(self.config, model), self._folder(model)
        source = self.config["models"][name]["source"]
        made = "package" in source and (folder / "config.json").exists()
        return flops.sizes_of(name, {"path": str(folder)} if made else source, self.parameters)
