"""The keys of the configuration: their types, limits and meanings, and what they are where they are left out.

The JSON schema that a configuration is checked against and docs/configuration.md are made of these structs
(orce.config.keys). Numbers stay as they were written, as in orce.stage_settings: 3 does not become 3.0.

A text in an annotation says what the key means, a Key what else holds of it. `An[T, ...] | None = None` is a key that may be left
out and is never null; `An[T | None, ...]` may be null. A key that stays UNSET where it is left out goes into the settings of a
stage only where a user writes it. `default` says in words what a key is that is left out, where the struct does not show it.
"""

from typing import Annotated as An
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

from orce import stage_settings

Number = int | float
T = TypeVar("T")
OrUnset = T | UnsetType


class Key:
    """words: what a JSON schema says of a value beside its type and description, and `unit`, what a number counts."""

    def __init__(self, **words: Any):
        self.words = words


def forms(*kinds: Any) -> Key:
    """The forms that a value may have, where msgspec cannot tell them apart by their types."""
    return Key(forms=kinds)


Name = An[str, Key(pattern=r"^[a-z0-9][a-z0-9.-]*$(?!\n)")]
Own = An[str, Key(pattern=r"^[a-z][a-z0-9_]*$(?!\n)")]  # name of a method or a reward
Count = An[int, Key(minimum=1)]
Positive = An[Number, Key(exclusiveMinimum=0)]
Seed = An[int, Key(minimum=0, maximum=4294967295)]
Temperature = An[Number, Key(exclusiveMinimum=0, maximum=10)]
Module = An[str, Key(pattern=r"\.py$"), "path of a Python file"]
Share = An[Number, Key(minimum=0, maximum=1)]


OURS = (  # fields of a request that the package sets
    "model", "messages", "stream", "n", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens", "logprobs"
)  # fmt: skip


class Part(Struct, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the configuration."""


# Sources


class Weights(Part, kw_only=True):
    hub: An[str, "repository id on the hub", Key(pattern="^[^/ ]+/[^/ ]+$")]
    revision: OrUnset[
        An[str, "branch, tag or commit; the commit used is recorded in the provenance", Key(default="main")]
    ] = UNSET


class Hub(Part, kw_only=True):
    hub: An[str, "repository id on the hub", Key(pattern="^[^/ ]+/[^/ ]+$")]
    config: OrUnset[An[str, "the hub's name of one of its configurations", Key(default="the task's own")]] = UNSET
    revision: OrUnset[
        An[str, "branch, tag or commit; the commit used is recorded in the provenance", Key(default="main")]
    ] = UNSET


class Folder(Part, kw_only=True):
    path: An[str, "local folder or file", Key(minLength=1)]


class Generated(Part, kw_only=True):
    size: OrUnset[An[Count, "size of a generated set", Key(unit="examples", default="all")]] = UNSET


class Shared(Part, kw_only=True):
    model: An[str, "another model whose weights it shares"]


class Packaged(Part, kw_only=True):
    package: An[str, "installed Python package that carries the weights"]
    file: An[str, "name of its GGUF file"]


class Nothing(Part, kw_only=True):
    """{}: only the answers that it once gave are known (answers.path)"""


class Server(Part, kw_only=True):
    server: An[
        str,
        "address of an OpenAI-compatible server, mostly with /v1; the key is read from the environment (api.key)",
        Key(pattern="^https?://[^@ ]+$"),
    ]
    model: An[str, "the server's name of the model", Key(minLength=1)]


class Source(TypedDict, total=False):
    """A source of any of the forms above."""

    hub: str
    revision: str | None
    path: str
    server: str
    model: str
    config: str
    size: int
    package: str
    file: str


# Data sets


class Split(stage_settings.Split, kw_only=True):
    origin: An[str, "split of the source"] = field(name="from")
    size: OrUnset[
        An[
            Count | An[str, Key(pattern="^[1-9][0-9]*/[1-9][0-9]*$")] | None,
            "how many; 1/3 is that share of the source's split; null is what the others leave",
            Key(unit="examples", default=None),
        ]
    ] = UNSET


class Splits(TypedDict):
    """examples of each stage; splits from one source split are disjoint"""

    sft: NotRequired[An[Split, "examples of the warm start; needed where a method is trained", Key(default="none")]]
    rl: NotRequired[
        An[Split, "examples of the alignment by DPO; needed where a method is trained", Key(default="none")]
    ]
    validation: NotRequired[An[Split, "examples that settings are chosen on (tune)", Key(default="none")]]
    test: An[Split, "examples of the tables"]
    shots: NotRequired[
        An[
            Split,
            "task qa: worked examples, shown before every question; models.NAME.shots shows fewer",
            Key(default="none"),
        ]
    ]


class Fields(TypedDict):
    """tasks qa and choice: columns of the source, as names or dotted paths (choices.text)"""

    question: NotRequired[
        An[str, "the question; may be left out of task qa where no row reads it", Key(default="required")]
    ]
    answer: NotRequired[
        An[
            str | An[list[str], Key(minItems=1)],
            "the right answer; of task qa also several columns of accepted answers, or none where given answers are judged",
            Key(default="required"),
        ]
    ]
    choices: NotRequired[
        An[
            str | An[list[str], Key(minItems=2, maxItems=26)],
            "task choice: the list of options, or several columns with an option each; needed without options",
            Key(default="none"),
        ]
    ]
    labels: NotRequired[
        An[str, "task choice: the options' published names, which answer is one of", Key(default="none")]
    ]
    context: NotRequired[An[str, "a passage before the question", Key(default="none")]]
    id: NotRequired[An[str, "a name for each question", Key(default="the row's number")]]


class Dataset(Part, kw_only=True):
    task: An[str, "module of orce.tasks, or the path of a Python file like one"]
    source: An[
        Source,
        forms(Hub, Folder, Generated),
        "where its examples come from: the hub, a folder (which replaces a hub of another file), or {} for a generated set",
    ]
    splits: An[dict[str, Split], forms(Splits)]
    fields: OrUnset[An[dict[str, str | list[str]], forms(Fields), Key(default="none")]] = UNSET
    options: OrUnset[
        An[
            list[An[str, Key(minLength=1)]],
            'task choice: the same options for every question, such as ["Yes", "No"]',
            Key(default="fields.choices", minItems=2, maxItems=26),
        ]
    ] = UNSET
    shuffle: OrUnset[
        An[
            bool,
            "task choice: options in an order drawn from the seed, where the right one always comes first",
            Key(default=False),
        ]
    ] = UNSET
    answer_is: OrUnset[
        An[
            str | dict[Any, str],
            forms(Literal["index", "index from 1", "letter", "text"], An[dict[Any, str], Key(minProperties=2)]),
            "task choice: what an answer is that could be several things: index (a position from 0), index from 1, "
            'letter, text, or what each value means, such as {0: "No", 1: "Yes"}',
            Key(default="what only one option fits"),
        ]
    ] = UNSET
    equality: OrUnset[
        An[
            Literal["exact", "normalised", "contains", "numeric", "math-verify"],
            "task qa: when two answers are the same",
            Key(default="normalised"),
        ]
    ] = UNSET
    answer_after: OrUnset[
        An[
            str,
            "task qa: the answer is what follows the last of these signs in its column, such as ####",
            Key(default="none", minLength=1),
        ]
    ] = UNSET
    answer_pattern: OrUnset[
        An[
            str,
            "tasks qa and choice: a regular expression of your own that finds the answer in a model's text; its last "
            "match counts, and its first group",
            Key(default="none", minLength=1),
        ]
    ] = UNSET
    ask: OrUnset[
        An[
            str,
            "tasks qa and choice: a line after each question, for sets whose text does not say what is asked",
            Key(default="none", minLength=1),
        ]
    ] = UNSET
    reasoning: An[
        bool, "the model thinks first and then gives a marked answer; a text without a marked answer is unread"
    ] = False
    grading: An[
        Literal["exact", "judge", "both"],
        "who says whether an answer is right: the task by its references, the judge of the key grading, or both, with "
        "a list of their disagreements",
    ] = "exact"
    judge_reads: An[
        Literal["answer", "reasoning"],
        "what the confidence LLM reads of a reply: its final answer, or its whole text and the final answer",
    ] = "answer"
    remove_overlap: An[bool, "drop training examples that are also in a test set"] = False
    confidence_from: (
        An[str, "dataset whose confidence LLMs judge this one (out of domain)", Key(default="itself")] | None
    ) = None
    calibrate_on: (
        An[
            str,
            "dataset on whose test split calibrations (METHOD+platt) are fitted; its confidence_from is this one",
            Key(default="none"),
        ]
        | None
    ) = None


# Models


class Api(Part, kw_only=True):
    """how its server is asked"""

    key: OrUnset[
        An[
            str,
            "environment variable that holds its key",
            Key(default="OPENAI_API_KEY", pattern="^[A-Za-z_][A-Za-z0-9_]*$"),
        ]
    ] = UNSET
    requests_per_minute: OrUnset[
        An[Positive, "that one job sends at most", Key(unit="requests", default="no limit")]
    ] = UNSET
    tokens_per_minute: OrUnset[
        An[Positive, "that one job asks for at most, prompts and answers", Key(unit="tokens", default="no limit")]
    ] = UNSET
    request: OrUnset[
        An[
            dict[str, Any],
            "further fields of every request, such as reasoning_effort or prompt_cache_key",
            Key(default={}, propertyNames={"not": {"enum": list(OURS)}}),
        ]
    ] = UNSET
    reasoning_tokens: OrUnset[
        An[Count, "added to the budget of each answer for a model that thinks first", Key(unit="tokens", default=0)]
    ] = UNSET
    logprobs: OrUnset[
        An[bool, "ask for the log-probabilities of greedy answers (row likelihood)", Key(default=False)]
    ] = UNSET


class Model(Part, kw_only=True):
    label: An[str, "name in the tables: one printable line, at most 100 characters"]
    source: An[
        Source,
        forms(Weights, Folder, Shared, Packaged, Nothing, Server),
        "where its weights come from (a folder replaces a hub of another file), or the server that answers for it",
    ]
    api: An[Api, Api.__doc__ or "", Key(default="none")] | None = None
    answers: An[Folder, "answers already made, of this model alone", Key(default="the key answers")] | None = None
    confidence: An[str, "model to train as confidence LLM for these answers", Key(default="itself")] | None = None
    template_kwargs: An[dict[str, Any], "arguments of the chat template"] = {}
    shots: An[An[int, Key(minimum=0)] | None, "worked examples in the prompt; null is the task's own"] = None
    trains: An[bool, "false: it only answers the test set (target of a transfer)"] = True


# What runs them


class Engine(Part, kw_only=True):
    """what generates the answer LLM's texts"""

    name: An[str, "module of orce.llm.engines: vllm, transformers or openai"]
    batch_tokens: An[
        Count,
        "computed together by the transformers engine and in reading confidences; lower it where memory is short",
        Key(unit="tokens"),
    ]
    gpu_memory_utilization: An[Share, "share of the GPU's memory that vllm takes"]
    concurrency: OrUnset[An[Count, "in flight at a server", Key(unit="requests", default=16)]] = UNSET
    timeout: OrUnset[
        An[Positive, "that one request may take as a whole, before it is sent again", Key(unit="seconds", default=600)]
    ] = UNSET
    max_retries: OrUnset[An[int, "of a request that failed temporarily", Key(unit="tries", default=10, minimum=0)]] = (
        UNSET
    )
    max_model_len: An[Count | None, "vllm's longest sequence; null is measured on the prompts", Key(unit="tokens")]
    max_num_seqs: OrUnset[
        An[Count | None, "that vllm computes at one time", Key(unit="sequences", default="vllm's own")]
    ] = UNSET


class Answers(Part, kw_only=True):
    """stage one: answers sampled from the answer LLM"""

    path: An[
        An[str, Key(minLength=1)] | None,
        "JSON lines of answers already made, in place of stage one; {dataset} and {model} in it are the cell's",
    ] = None
    samples: An[Count, "K, answers sampled for each prompt", Key(unit="answers")]
    temperature: An[Temperature, "of the K samples; far above 1 they are noise, and most servers stop at 2"]
    top_p: An[Number, "share of the probability that is sampled from", Key(exclusiveMinimum=0, maximum=1)]
    max_tokens: An[Count | None, "budget of an answer; null is the task's own", Key(unit="tokens")]
    shards: An[Count, "that each sampling is split into, each with its own engine", Key(unit="jobs")]
    chunk: An[Count, "between two writes to disk", Key(unit="prompts")]


class Grading(Part, kw_only=True):
    """the judge of the data sets with grading: judge or both (docs/grading.md)"""

    model: An[str, "the judge: a key of models; one with weights, or on a server"]
    prompt: (
        An[
            str,
            "its question: a Jinja template with question, references and answer",
            Key(default="the package's own", pattern=r"\.j2$"),
        ]
        | None
    ) = None
    max_tokens: An[Count, "budget of its reply", Key(unit="tokens")] = 16
    prefer: An[Literal["judge", "exact"], "with grading: both, whose grade counts where the two differ"] = "judge"
    group: An[
        Literal["none", "judge", "nli"],
        "what says which samples mean the same: the task by its texts, the judge, or an NLI model",
    ] = "none"
    nli: An[Source, forms(Weights, Folder), "the NLI model: {hub, revision} or {path}", Key(default="none")] | None = (
        None
    )


class Similarity(Part, kw_only=True):
    """how alike samples are, for the rows eigv, degree, eccentricity and kle; without it the words that they share"""

    embedding: An[
        Source,
        forms(Weights, Folder),
        "an encoder such as all-MiniLM-L6-v2, whose states are averaged: {hub, revision} or {path}",
    ]


class Confidence(Part, kw_only=True):
    """candidate confidences that DPO chooses from"""

    candidates: An[int, "M, sampled for each RL pair", Key(unit="confidences", minimum=2)]
    temperature: An[
        Temperature, "of sampling from P(c | question, answer); far above 1 the candidates are evenly spread"
    ]
    shards: An[Count, "that each reading is split into", Key(unit="jobs")]
    chunk: An[Count, "between two writes to disk", Key(unit="prompts")]


# Trainings


class Lora(Part, kw_only=True):
    """adapters; unused where method is full"""

    r: An[Count, "rank"]
    alpha: An[Positive, "scale"]
    dropout: An[Number, "dropout before the adapter", Key(minimum=0, exclusiveMaximum=1)]
    target_modules: An[list[str], "adapted linear layers", Key(minItems=1)]
    last_layers: An[Count | None, "adapt only so many of the last ones; null is all", Key(unit="layers")]


class Training(Part, kw_only=True):
    """what the three trainings share"""

    method: An[Literal["lora", "full"], "adapters or all weights"]
    lora: Lora
    shared_prefix: An[bool, "compute the prefix that a batch's sequences share once; false: TRL's own loss"]
    checkpointing: An[bool, "recompute activations in the backward pass"]
    grouped: OrUnset[
        An[
            bool,
            "keep questions about one passage together when an epoch is shuffled: DROP's training then computes each "
            "passage once",
            Key(default=False),
        ]
    ] = UNSET
    micro_batch_tokens: An[
        Count | Literal["auto"],
        forms(Count, Literal["auto"]),
        "of one forward and backward pass on one GPU, whatever batch_size is; auto: as many as its memory has room for",
        Key(unit="tokens"),
    ]
    save_steps: An[Count, "between checkpoints", Key(unit="steps")]
    gpus: An[int, "of one training job; more than one starts it through torchrun", Key(unit="GPUs", minimum=0)]
    shard: An[
        bool, "each GPU of a training keeps its share of the weights (FSDP2), for a model that one cannot hold"
    ] = False
    launch: An[list[str], "further arguments of torchrun"]
    report_to: An[
        list[Literal["tensorboard", "wandb", "mlflow"]],
        "experiment trackers that get loss and learning rate of each step; changing them reruns nothing",
        Key(uniqueItems=True),
    ] = []


class Optimisation(Part, kw_only=True):
    epochs: An[Positive, "passes over the examples", Key(unit="epochs")]
    learning_rate: An[
        Number,
        "peak learning rate; AdamW moves each weight by about as much in a step",
        Key(exclusiveMinimum=0, maximum=1),
    ]
    batch_size: An[Count, "examples of one optimizer step", Key(unit="examples")]
    warmup_ratio: An[Number, "share of the steps that warm up", Key(minimum=0, exclusiveMaximum=1)]
    scheduler: An[Literal["cosine", "linear", "constant", "constant_with_warmup"], "learning-rate schedule"]
    weight_decay: An[Number, "AdamW's weight decay", Key(minimum=0)]


class WarmStart(Optimisation, kw_only=True):
    """the warm start (section 3.2)"""

    target: An[Literal["kappa", "reversed"], "what is stated for a pair: kappa, or 1 - kappa (for experiments only)"]
    epochs: An[Number, "passes over the examples; 0 leaves the model as it is", Key(unit="epochs", minimum=0)]


class Alignment(Optimisation, kw_only=True):
    """the alignment (section 3.3)"""

    rounds: An[Count, "how often candidates are sampled and (C, K) computed", Key(unit="times")]
    reference: An[
        Literal["stated", "mean"],
        "C of the reference set (C, K): what the model states, or the mean of its distribution",
    ]
    leave_one_out: An[bool, "leave a prompt's own entry out of the reference set (C, K)"]
    beta: An[Positive, "strength of the pull to the reference model"]
    anchor: OrUnset[
        An[Number, "weight of the chosen statement's negative log-likelihood", Key(default=0, minimum=0)]
    ] = UNSET


class Tune(Part, kw_only=True):
    """grid of dpo's settings, which `snakemake -- tune` tries on the validation split"""

    beta: An[list[Positive], "values of dpo.beta", Key(minItems=1)]
    learning_rate: An[list[Positive], "values of dpo.learning_rate", Key(minItems=1)]
    epochs: An[list[Positive], "values of dpo.epochs", Key(minItems=1)]
    metric: An[Literal["e_aurc", "aurc", "ece", "brier"], "what is to be low, of the configured readout"]


# What is measured and shown


class Evaluation(Part, kw_only=True):
    """what is stated on the test set and measured"""

    readout: An[
        Literal["stated", "mean", "mode"],
        "confidence of a stated method: the value that it states, or the mean or mode of its distribution",
    ]
    unparsed_confidence: An[Share, "replaces a confidence that could not be read at a second try either"]
    bootstrap: An[Count, "of the 95 % intervals", Key(unit="resamples")]


class Table(Part, kw_only=True):
    kind: An[Literal["main", "ablation", "transfer"], "its rows: the seven methods, the rewards, or transferred LLMs"]
    dataset: An[str, "a key of datasets"]
    models: An[list[str], "keys of models", Key(minItems=1)]
    methods: OrUnset[
        An[
            An[list[str], Key(minItems=1)] | An[dict[str, str], Key(minProperties=1)],
            "its rows: a list of methods (orce-nrd for one under another reward), or methods with labels",
            Key(default="the paper's"),
        ]
    ] = UNSET
    source: OrUnset[
        An[str, "model whose confidence LLMs are transferred (kind transfer needs it)", Key(default="none")]
    ] = UNSET
    caption: OrUnset[An[str, "replaces the caption", Key(default="the paper's")]] = UNSET
    label: OrUnset[An[str, "replaces the LaTeX label; letters, digits and . : _ / + -", Key(default="tab:NAME")]] = (
        UNSET
    )


class Resources(Part, kw_only=True):
    """of one job that loads a model; a profile can set them for each rule"""

    mem_mb: An[Count, "memory", Key(unit="MB")]
    runtime: An[Count, "limit of its time", Key(unit="minutes")]
    threads: An[Count, "CPU cores", Key(unit="threads")]


class Config(Part, kw_only=True):
    """ORCE configuration"""

    python: An[str | None, "interpreter that runs the steps; null is the one that runs Snakemake"] = None
    seed: An[Seed, "every random choice derives from it; numpy takes seeds below 2**32"]
    datasets: An[dict[Name, Dataset], "the data sets, by a name of your choice", Key(minProperties=1)]
    models: An[dict[Name, Model], "the foundation models, by a name of your choice", Key(minProperties=1)]
    device: An[Literal["cuda", "cpu"], "where models run"]
    dtype: An[Literal["bfloat16", "float16", "float32"], "of the weights"]
    gpus: An[int, "of a job that generates or reads", Key(unit="GPUs", minimum=0)]
    engine: Engine
    answers: Answers
    grading: An[Grading, Grading.__doc__ or "", Key(default="none")] | None = None
    similarity: An[Similarity, Similarity.__doc__ or "", Key(default="none")] | None = None
    confidence: Confidence
    training: Training
    sft: WarmStart
    dpo: Alignment
    tune: Tune | None = None
    methods: An[
        dict[Own, An[str | dict[str, Any], forms(Module, dict[str, Any])]],
        "settings of the methods, by name; methods of your own, by the path of a Python file; confidences made "
        "elsewhere, as {path: FILE.jsonl, label: TEXT}; rows combined, as {of: [ROW, ROW], fit: mean, product or "
        "logistic, label: TEXT}",
    ]
    rewards: An[dict[Own, Module], "rewards of your own, by the path of a Python file (docs/extending.md)"] = {}
    evaluation: Evaluation
    tables: An[dict[str, Table], "the tables that can be asked for, by a name of your choice"]
    paper_tables: An[list[str], "which of them the target paper_tables renders", Key(minItems=1)]
    resources: Resources
