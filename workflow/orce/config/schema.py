"""The keys of the configuration: their types, limits and meanings, and what they are where they are left out.

The JSON schema that a configuration is checked against and docs/configuration.md are made of these structs
(orce.config.keys). Numbers stay as they were written, as in orce.stage_settings: 3 does not become 3.0.

`An[T, describe(...)] | None = None` is a key that may be left out and is never null; `An[T | None, describe(...)]` may be null. A key
that stays UNSET where it is left out goes into the settings of a stage only where a user writes it. `default` says in words
what a key is that is left out, where the struct does not show it.
"""

from typing import Annotated as An
from typing import Any, Literal, NotRequired, TypedDict

from msgspec import UNSET, Struct, UnsetType, field

from orce import stage_settings

Number = int | float


class Key:
    """words: what a JSON schema says of a value beside its type, and `unit`, what a number counts."""

    def __init__(self, words: dict[str, Any]):
        self.words = words


def describe(description: str | None = None, /, **words: Any) -> Key:
    return Key(({"description": description} if description else {}) | words)


def forms(*kinds: Any) -> Key:
    """The forms that a value may have, where msgspec cannot tell them apart by their types."""
    return Key({"forms": kinds})


Name = An[str, describe(pattern=r"^[a-z0-9][a-z0-9.-]*$(?!\n)")]
Own = An[str, describe(pattern=r"^[a-z][a-z0-9_]*$(?!\n)")]  # name of a method or a reward
Count = An[int, describe(minimum=1)]
Positive = An[Number, describe(exclusiveMinimum=0)]
Seed = An[int, describe(minimum=0, maximum=4294967295)]
Temperature = An[Number, describe(exclusiveMinimum=0, maximum=10)]
Module = An[str, describe(pattern=r"\.py$", description="path of a Python file")]
Share = An[Number, describe(minimum=0, maximum=1)]


OURS = (  # fields of a request that the package sets
    "model", "messages", "stream", "n", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens", "logprobs",
)  # fmt: skip


class Part(Struct, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the configuration."""


# Sources


class Weights(Part, kw_only=True):
    hub: An[str, describe("repository id on the hub", pattern="^[^/ ]+/[^/ ]+$")]
    revision: (
        An[str, describe("branch, tag or commit; the commit used is recorded in the provenance", default="main")]
        | UnsetType
    ) = UNSET


class Hub(Part, kw_only=True):
    hub: An[str, describe("repository id on the hub", pattern="^[^/ ]+/[^/ ]+$")]
    config: An[str, describe("the hub's name of one of its configurations", default="the task's own")] | UnsetType = (
        UNSET
    )
    revision: (
        An[str, describe("branch, tag or commit; the commit used is recorded in the provenance", default="main")]
        | UnsetType
    ) = UNSET


class Folder(Part, kw_only=True):
    path: An[str, describe("local folder or file", minLength=1)]


class Generated(Part, kw_only=True):
    size: An[Count, describe("size of a generated set", unit="examples", default="all")] | UnsetType = UNSET


class Shared(Part, kw_only=True):
    model: An[str, describe("another model whose weights it shares")]


class Packaged(Part, kw_only=True):
    package: An[str, describe("installed Python package that carries the weights")]
    file: An[str, describe("name of its GGUF file")]


class Nothing(Part, kw_only=True):
    """{}: only the answers that it once gave are known (answers.path)"""


class Server(Part, kw_only=True):
    server: An[
        str,
        describe(
            "address of an OpenAI-compatible server, mostly with /v1; the key is read from the environment (api.key)",
            pattern="^https?://[^@ ]+$",
        ),
    ]
    model: An[str, describe("the server's name of the model", minLength=1)]


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
    origin: An[str, describe("split of the source")] = field(name="from")
    size: (
        An[
            Count | An[str, describe(pattern="^[1-9][0-9]*/[1-9][0-9]*$")] | None,
            describe(
                "how many; 1/3 is that share of the source's split; null is what the others leave",
                unit="examples",
                default=None,
            ),
        ]
        | UnsetType
    ) = UNSET


class Splits(TypedDict):
    """examples of each stage; splits from one source split are disjoint"""

    sft: NotRequired[
        An[Split, describe("examples of the warm start; needed where a method is trained", default="none")]
    ]
    rl: NotRequired[
        An[Split, describe("examples of the alignment by DPO; needed where a method is trained", default="none")]
    ]
    validation: NotRequired[An[Split, describe("examples that settings are chosen on (tune)", default="none")]]
    test: An[Split, describe("examples of the tables")]
    shots: NotRequired[
        An[
            Split,
            describe(
                "task qa: worked examples, shown before every question; models.NAME.shots shows fewer", default="none"
            ),
        ]
    ]


class Fields(TypedDict):
    """tasks qa and choice: columns of the source, as names or dotted paths (choices.text)"""

    question: NotRequired[
        An[str, describe("the question; may be left out of task qa where no row reads it", default="required")]
    ]
    answer: NotRequired[
        An[
            str | An[list[str], describe(minItems=1)],
            describe(
                "the right answer; of task qa also several columns of accepted answers, or none where given answers are judged",
                default="required",
            ),
        ]
    ]
    choices: NotRequired[
        An[
            str | An[list[str], describe(minItems=2, maxItems=26)],
            describe(
                "task choice: the list of options, or several columns with an option each; needed without options",
                default="none",
            ),
        ]
    ]
    labels: NotRequired[
        An[str, describe("task choice: the options' published names, which answer is one of", default="none")]
    ]
    context: NotRequired[An[str, describe("a passage before the question", default="none")]]
    id: NotRequired[An[str, describe("a name for each question", default="the row's number")]]


class Dataset(Part, kw_only=True):
    task: An[str, describe("module of orce.tasks, or the path of a Python file like one")]
    source: An[
        Source,
        forms(Hub, Folder, Generated),
        describe(
            "where its examples come from: the hub, a folder (which replaces a hub of another file), or {} for a generated set"
        ),
    ]
    splits: An[dict[str, Split], forms(Splits)]
    fields: An[dict[str, str | list[str]], forms(Fields), describe(default="none")] | UnsetType = UNSET
    options: (
        An[
            list[An[str, describe(minLength=1)]],
            describe(
                'task choice: the same options for every question, such as ["Yes", "No"]',
                default="those of fields.choices",
                minItems=2,
                maxItems=26,
            ),
        ]
        | UnsetType
    ) = UNSET
    shuffle: (
        An[
            bool,
            describe(
                "task choice: options in an order drawn from the seed, where the right one always comes first",
                default=False,
            ),
        ]
        | UnsetType
    ) = UNSET
    answer_is: (
        An[
            str | dict[Any, str],
            forms(Literal["index", "index from 1", "letter", "text"], An[dict[Any, str], describe(minProperties=2)]),
            describe(
                "task choice: what an answer is that could be several things: index (a position from 0), index from 1, "
                'letter, text, or what each value means, such as {0: "No", 1: "Yes"}',
                default="what only one option fits",
            ),
        ]
        | UnsetType
    ) = UNSET
    equality: (
        An[
            Literal["exact", "normalised", "contains", "numeric", "math-verify"],
            describe("task qa: when two answers are the same", default="normalised"),
        ]
        | UnsetType
    ) = UNSET
    answer_after: (
        An[
            str,
            describe(
                "task qa: the answer is what follows the last of these signs in its column, such as ####",
                default="none",
                minLength=1,
            ),
        ]
        | UnsetType
    ) = UNSET
    answer_pattern: (
        An[
            str,
            describe(
                "tasks qa and choice: a regular expression of your own that finds the answer in a model's text; its last "
                "match counts, and its first group",
                default="none",
                minLength=1,
            ),
        ]
        | UnsetType
    ) = UNSET
    ask: (
        An[
            str,
            describe(
                "tasks qa and choice: a line after each question, for sets whose text does not say what is asked",
                default="none",
                minLength=1,
            ),
        ]
        | UnsetType
    ) = UNSET
    reasoning: An[
        bool,
        describe("the model thinks first and then gives a marked answer; a text without a marked answer is unread"),
    ] = False
    grading: An[
        Literal["exact", "judge", "both"],
        describe(
            "who says whether an answer is right: the task by its references, the judge of the key grading, or both, with "
            "a list of their disagreements"
        ),
    ] = "exact"
    judge_reads: An[
        Literal["answer", "reasoning"],
        describe("what the confidence LLM reads of a reply: its final answer, or its whole text and the final answer"),
    ] = "answer"
    remove_overlap: An[bool, describe("drop training examples that are also in a test set")] = False
    confidence_from: (
        An[str, describe("dataset whose confidence LLMs judge this one (out of domain)", default="itself")] | None
    ) = None
    calibrate_on: (
        An[
            str,
            describe(
                "dataset on whose test split calibrations (METHOD+platt) are fitted; its confidence_from is this one",
                default="none",
            ),
        ]
        | None
    ) = None


# Models


class Api(Part, kw_only=True):
    """how its server is asked"""

    key: (
        An[
            str,
            describe(
                "environment variable that holds its key", default="OPENAI_API_KEY", pattern="^[A-Za-z_][A-Za-z0-9_]*$"
            ),
        ]
        | UnsetType
    ) = UNSET
    requests_per_minute: (
        An[Positive, describe("that one job sends at most", unit="requests", default="no limit")] | UnsetType
    ) = UNSET
    tokens_per_minute: (
        An[Positive, describe("that one job asks for at most, prompts and answers", unit="tokens", default="no limit")]
        | UnsetType
    ) = UNSET
    request: (
        An[
            dict[str, Any],
            describe(
                "further fields of every request, such as reasoning_effort or prompt_cache_key",
                default={},
                propertyNames={"not": {"enum": list(OURS)}},
            ),
        ]
        | UnsetType
    ) = UNSET
    reasoning_tokens: (
        An[
            Count,
            describe("added to the budget of each answer for a model that thinks first", unit="tokens", default=0),
        ]
        | UnsetType
    ) = UNSET
    logprobs: (
        An[bool, describe("ask for the log-probabilities of greedy answers (row likelihood)", default=False)]
        | UnsetType
    ) = UNSET


class Model(Part, kw_only=True):
    label: An[str, describe("name in the tables: one printable line, at most 100 characters")]
    source: An[
        Source,
        forms(Weights, Folder, Shared, Packaged, Nothing, Server),
        describe(
            "where its weights come from (a folder replaces a hub of another file), or the server that answers for it"
        ),
    ]
    api: An[Api, describe(Api.__doc__ or "", default="none")] | None = None
    answers: (
        An[Folder, describe("answers already made, of this model alone", default="those of the key answers")] | None
    ) = None
    confidence: An[str, describe("model to train as confidence LLM for these answers", default="itself")] | None = None
    template_kwargs: An[dict[str, Any], describe("arguments of the chat template")] = {}
    shots: An[
        An[int, describe(minimum=0)] | None, describe("worked examples in the prompt; null is the task's own")
    ] = None
    trains: An[bool, describe("false: it only answers the test set (target of a transfer)")] = True


# What runs them


class Engine(Part, kw_only=True):
    """what generates the answer LLM's texts"""

    name: An[str, describe("module of orce.llm.engines: vllm, transformers or openai")]
    batch_tokens: An[
        Count,
        describe(
            "computed together by the transformers engine and in reading confidences; lower it where memory is short",
            unit="tokens",
        ),
    ]
    gpu_memory_utilization: An[Share, describe("share of the GPU's memory that vllm takes")]
    concurrency: An[Count, describe("in flight at a server", unit="requests", default=16)] | UnsetType = UNSET
    timeout: (
        An[
            Positive,
            describe("that one request may take as a whole, before it is sent again", unit="seconds", default=600),
        ]
        | UnsetType
    ) = UNSET
    max_retries: (
        An[int, describe("of a request that failed temporarily", unit="tries", default=10, minimum=0)] | UnsetType
    ) = UNSET
    max_model_len: An[Count | None, describe("vllm's longest sequence; null is measured on the prompts", unit="tokens")]
    max_num_seqs: (
        An[Count | None, describe("that vllm computes at one time", unit="sequences", default="vllm's own")] | UnsetType
    ) = UNSET


class Answers(Part, kw_only=True):
    """stage one: answers sampled from the answer LLM"""

    path: An[
        An[str, describe(minLength=1)] | None,
        describe(
            "JSON lines of answers already made, in place of stage one; {dataset} and {model} in it are the cell's"
        ),
    ] = None
    samples: An[Count, describe("K, answers sampled for each prompt", unit="answers")]
    temperature: An[Temperature, describe("of the K samples; far above 1 they are noise, and most servers stop at 2")]
    top_p: An[Number, describe("share of the probability that is sampled from", exclusiveMinimum=0, maximum=1)]
    max_tokens: An[Count | None, describe("budget of an answer; null is the task's own", unit="tokens")]
    shards: An[Count, describe("that each sampling is split into, each with its own engine", unit="jobs")]
    chunk: An[Count, describe("between two writes to disk", unit="prompts")]


class Grading(Part, kw_only=True):
    """the judge of the data sets with grading: judge or both (docs/grading.md)"""

    model: An[str, describe("the judge: a key of models; one with weights, or on a server")]
    prompt: (
        An[
            str,
            describe(
                "its question: a Jinja template with question, references and answer",
                default="the package's own",
                pattern=r"\.j2$",
            ),
        ]
        | None
    ) = None
    max_tokens: An[Count, describe("budget of its reply", unit="tokens")] = 16
    prefer: An[Literal["judge", "exact"], describe("with grading: both, whose grade counts where the two differ")] = (
        "judge"
    )
    group: An[
        Literal["none", "judge", "nli"],
        describe("what says which samples mean the same: the task by its texts, the judge, or an NLI model"),
    ] = "none"
    nli: (
        An[Source, forms(Weights, Folder), describe("the NLI model: {hub, revision} or {path}", default="none")] | None
    ) = None


class Similarity(Part, kw_only=True):
    """how alike samples are, for the rows eigv, degree, eccentricity and kle; without it the words that they share"""

    embedding: An[
        Source,
        forms(Weights, Folder),
        describe("an encoder such as all-MiniLM-L6-v2, whose states are averaged: {hub, revision} or {path}"),
    ]


class Confidence(Part, kw_only=True):
    """candidate confidences that DPO chooses from"""

    candidates: An[int, describe("M, sampled for each RL pair", unit="confidences", minimum=2)]
    temperature: An[
        Temperature, describe("of sampling from P(c | question, answer); far above 1 the candidates are evenly spread")
    ]
    shards: An[Count, describe("that each reading is split into", unit="jobs")]
    chunk: An[Count, describe("between two writes to disk", unit="prompts")]


# Trainings


class Lora(Part, kw_only=True):
    """adapters; unused where method is full"""

    r: An[Count, describe("rank")]
    alpha: An[Positive, describe("scale")]
    dropout: An[Number, describe("dropout before the adapter", minimum=0, exclusiveMaximum=1)]
    target_modules: An[list[str], describe("adapted linear layers", minItems=1)]
    last_layers: An[Count | None, describe("adapt only so many of the last ones; null is all", unit="layers")]


class Training(Part, kw_only=True):
    """what the three trainings share"""

    method: An[Literal["lora", "full"], describe("adapters or all weights")]
    lora: Lora
    shared_prefix: An[bool, describe("compute the prefix that a batch's sequences share once; false: TRL's own loss")]
    checkpointing: An[bool, describe("recompute activations in the backward pass")]
    grouped: (
        An[
            bool,
            describe(
                "keep questions about one passage together when an epoch is shuffled: DROP's training then computes each "
                "passage once",
                default=False,
            ),
        ]
        | UnsetType
    ) = UNSET
    micro_batch_tokens: An[
        Count | Literal["auto"],
        forms(Count, Literal["auto"]),
        describe(
            "of one forward and backward pass on one GPU, whatever batch_size is; auto: as many as its memory has room for",
            unit="tokens",
        ),
    ]
    save_steps: An[Count, describe("between checkpoints", unit="steps")]
    gpus: An[int, describe("of one training job; more than one starts it through torchrun", unit="GPUs", minimum=0)]
    shard: An[
        bool,
        describe("each GPU of a training keeps its share of the weights (FSDP2), for a model that one cannot hold"),
    ] = False
    launch: An[list[str], describe("further arguments of torchrun")]
    report_to: An[
        list[Literal["tensorboard", "wandb", "mlflow"]],
        describe(
            "experiment trackers that get loss and learning rate of each step; changing them reruns nothing",
            uniqueItems=True,
        ),
    ] = []


class Optimisation(Part, kw_only=True):
    epochs: An[Positive, describe("passes over the examples", unit="epochs")]
    learning_rate: An[
        Number,
        describe(
            "peak learning rate; AdamW moves each weight by about as much in a step", exclusiveMinimum=0, maximum=1
        ),
    ]
    batch_size: An[Count, describe("examples of one optimizer step", unit="examples")]
    warmup_ratio: An[Number, describe("share of the steps that warm up", minimum=0, exclusiveMaximum=1)]
    scheduler: An[Literal["cosine", "linear", "constant", "constant_with_warmup"], describe("learning-rate schedule")]
    weight_decay: An[Number, describe("AdamW's weight decay", minimum=0)]


class WarmStart(Optimisation, kw_only=True):
    """the warm start (section 3.2)"""

    target: An[
        Literal["kappa", "reversed"],
        describe("what is stated for a pair: kappa, or 1 - kappa (for experiments only)"),
    ]
    epochs: An[Number, describe("passes over the examples; 0 leaves the model as it is", unit="epochs", minimum=0)]


class Alignment(Optimisation, kw_only=True):
    """the alignment (section 3.3)"""

    rounds: An[Count, describe("how often candidates are sampled and (C, K) computed", unit="times")]
    reference: An[
        Literal["stated", "mean"],
        describe("C of the reference set (C, K): what the model states, or the mean of its distribution"),
    ]
    leave_one_out: An[bool, describe("leave a prompt's own entry out of the reference set (C, K)")]
    beta: An[Positive, describe("strength of the pull to the reference model")]
    anchor: (
        An[Number, describe("weight of the chosen statement's negative log-likelihood", default=0, minimum=0)]
        | UnsetType
    ) = UNSET


class Tune(Part, kw_only=True):
    """grid of dpo's settings, which `snakemake -- tune` tries on the validation split"""

    beta: An[list[Positive], describe("values of dpo.beta", minItems=1)]
    learning_rate: An[list[Positive], describe("values of dpo.learning_rate", minItems=1)]
    epochs: An[list[Positive], describe("values of dpo.epochs", minItems=1)]
    metric: An[Literal["e_aurc", "aurc", "ece", "brier"], describe("what is to be low, of the configured readout")]


# What is measured and shown


class Evaluation(Part, kw_only=True):
    """what is stated on the test set and measured"""

    readout: An[
        Literal["stated", "mean", "mode"],
        describe("confidence of a stated method: the value that it states, or the mean or mode of its distribution"),
    ]
    unparsed_confidence: An[Share, describe("replaces a confidence that could not be read at a second try either")]
    bootstrap: An[Count, describe("of the 95 % intervals", unit="resamples")]


class Table(Part, kw_only=True):
    kind: An[
        Literal["main", "ablation", "transfer"],
        describe("its rows: the seven methods, the rewards, or transferred LLMs"),
    ]
    dataset: An[str, describe("a key of datasets")]
    models: An[list[str], describe("keys of models", minItems=1)]
    methods: (
        An[
            An[list[str], describe(minItems=1)] | An[dict[str, str], describe(minProperties=1)],
            describe(
                "its rows: a list of methods (orce-nrd for one under another reward), or methods with labels",
                default="the paper's",
            ),
        ]
        | UnsetType
    ) = UNSET
    source: (
        An[str, describe("model whose confidence LLMs are transferred (kind transfer needs it)", default="none")]
        | UnsetType
    ) = UNSET
    caption: An[str, describe("replaces the caption", default="the paper's")] | UnsetType = UNSET
    label: (
        An[str, describe("replaces the LaTeX label; letters, digits and . : _ / + -", default="tab:NAME")] | UnsetType
    ) = UNSET


class Resources(Part, kw_only=True):
    """of one job that loads a model; a profile can set them for each rule"""

    mem_mb: An[Count, describe("memory", unit="MB")]
    runtime: An[Count, describe("limit of its time", unit="minutes")]
    threads: An[Count, describe("CPU cores", unit="threads")]


class Config(Part, kw_only=True):
    """ORCE configuration"""

    python: An[str | None, describe("interpreter that runs the steps; null is the one that runs Snakemake")] = None
    seed: An[Seed, describe("every random choice derives from it; numpy takes seeds below 2**32")]
    datasets: An[dict[Name, Dataset], describe("the data sets, by a name of your choice", minProperties=1)]
    models: An[dict[Name, Model], describe("the foundation models, by a name of your choice", minProperties=1)]
    device: An[Literal["cuda", "cpu"], describe("where models run")]
    dtype: An[Literal["bfloat16", "float16", "float32"], describe("of the weights")]
    gpus: An[int, describe("of a job that generates or reads", unit="GPUs", minimum=0)]
    engine: Engine
    answers: Answers
    grading: An[Grading, describe(Grading.__doc__ or "", default="none")] | None = None
    similarity: An[Similarity, describe(Similarity.__doc__ or "", default="none")] | None = None
    confidence: Confidence
    training: Training
    sft: WarmStart
    dpo: Alignment
    tune: Tune | None = None
    methods: An[
        dict[Own, An[str | dict[str, Any], forms(Module, dict[str, Any])]],
        describe(
            "settings of the methods, by name; methods of your own, by the path of a Python file; confidences made "
            "elsewhere, as {path: FILE.jsonl, label: TEXT}; rows combined, as {of: [ROW, ROW], fit: mean, product or "
            "logistic, label: TEXT}"
        ),
    ]
    rewards: An[
        dict[Own, Module], describe("rewards of your own, by the path of a Python file (docs/extending.md)")
    ] = {}
    evaluation: Evaluation
    tables: An[dict[str, Table], describe("the tables that can be asked for, by a name of your choice")]
    paper_tables: An[list[str], describe("which of them the target paper_tables renders", minItems=1)]
    resources: Resources
