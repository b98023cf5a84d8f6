"""The keys of the configuration: types and limits, and beside each key what it means.

docs/configuration.md and the errors take the meanings from the comments here; `default` in one says
what a key is that is left out, where the struct does not show it. A key that stays UNSET goes into
settings only where a user writes it.
"""

from typing import Annotated as An
from typing import Any, Literal, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType, field

Number = int | float
Name = An[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9.-]*\Z",
        description="small letters, digits, dots and hyphens, a letter or digit first",
    ),
]
Own = An[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9_]*\Z",
        description="small letters, digits and underscores, a letter first",
    ),
]
TableName = An[  # of a file, which LaTeX reads by \input
    str,
    Meta(
        pattern=r"^(?!(tables|comparison)\Z)[A-Za-z0-9_-]*[A-Za-z0-9][A-Za-z0-9_-]*\Z",
        description="letters, digits, - and _, and neither tables nor comparison",
    ),
]
# Anything else could end \label{...} and begin a command.
Label = An[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9.:_/+-]*\Z",
        description="LaTeX label of letters, digits and . : _ / + -",
    ),
]
Text = An[str, Meta(min_length=1, description="text that is not empty")]
Texts = An[list[str], Meta(min_length=1, description="list of texts")]
Count = An[int, Meta(ge=1)]
# Numbers that multiply the time of a run have an upper limit too: beyond it, a run takes years.
Rounds = An[int, Meta(ge=1, le=100)]
Times = An[int, Meta(ge=1, le=10_000)]
Resamples = An[int, Meta(ge=1, le=1_000_000)]
Epochs = An[int, Meta(gt=0, le=10_000)] | An[float, Meta(gt=0, le=10_000)]
EpochsFromZero = An[int, Meta(ge=0, le=10_000)] | An[float, Meta(ge=0, le=10_000)]
Positive = An[int, Meta(gt=0)] | An[float, Meta(gt=0)]
Temperature = An[int, Meta(gt=0, le=10)] | An[float, Meta(gt=0, le=10)]
Module = An[str, Meta(pattern=r"\.py\Z", description="path of a Python file")]
Template = An[str, Meta(pattern=r"\.j2\Z", description="path of a .j2 file")]
Rate = An[int, Meta(gt=0, le=1)] | An[float, Meta(gt=0, le=1)]
Ratio = An[int, Meta(ge=0, lt=1)] | An[float, Meta(ge=0, lt=1)]
FromZero = An[int, Meta(ge=0)] | An[float, Meta(ge=0)]
Share = An[int, Meta(ge=0, le=1)] | An[float, Meta(ge=0, le=1)]
Choices = An[list[Text], Meta(min_length=2, max_length=26, description="list of 2 to 26 texts")]
Words = An[list[str], Meta(min_length=1, max_length=26, description="list of up to 26 words")]
Columns = An[list[str], Meta(min_length=1, max_length=26, description="list of up to 26 columns")]
Fraction = An[str, Meta(pattern=r"^[1-9][0-9]*/[1-9][0-9]*\Z", description="share such as 1/3")]
Values = An[list[Positive], Meta(min_length=1, description="list of numbers > 0")]
Repository = An[str, Meta(pattern=r"^[^/\s]+/[^/\s]+\Z", description="OWNER/NAME")]
# a name, a password, a query and a fragment may be secret, and would stand in every seal
Address = An[
    str,
    Meta(
        pattern=r"^https?://[^@?#\s]+\Z",
        description="http:// or https:// and an address, without a name, password, query or # (api.key names the environment variable of a key)",
    ),
]
Variable = An[
    str,
    Meta(
        pattern=r"^[A-Z_][A-Z0-9_]*\Z",
        description="name, in capitals, of an environment variable that holds it",
    ),
]
Given = dict[
    Literal["id", "question", "answers", "greedy", "answer", "correct", "confidence"], str | Texts
]
Splits = Literal["sft", "rl", "validation", "test", "shots"]
Fields = Literal["question", "answer", "choices", "labels", "context", "id"]


class Part(Struct, kw_only=True):
    """A mapping of the configuration."""


class GivenFile(Part, kw_only=True):
    path: Text  # JSON lines, JSON, CSV, TSV or Parquet; {dataset} and {model} in it are the cell's
    # {key of a given line: its column}; a dot leads into nested JSON, several columns make a list
    # (default: the keys)
    fields: Given | UnsetType = UNSET


class Source(TypedDict, total=False):
    """Where examples or weights come from; orce.settings.load has the forms that it may have."""

    hub: Repository  # repository id on the hub
    # branch, tag or commit; the commit used is recorded in the provenance (default: main)
    revision: str | None
    config: str  # of data: the hub's name of one of its configurations
    path: Text  # local folder or file; it replaces a hub of another file
    size: Count  # of generated data: its examples (default: all)
    package: str  # of weights: installed Python package that carries them
    file: str  # name of its GGUF file
    # address of an OpenAI-compatible server, mostly with /v1; the key is read from the environment
    server: Address
    # the server's name of the model; without a server another model whose weights this one shares
    model: Text


class Split(Part, kw_only=True):
    origin: str = field(name="from")  # split of the source
    # how many; 1/3 is that share of the source's split; null is what the others leave (examples)
    size: Count | Fraction | None | UnsetType = UNSET

    @property
    def share(self) -> int | str | None:
        """Its size; None for what the other splits leave."""
        return None if isinstance(self.size, UnsetType) else self.size


class Dataset(Part, kw_only=True):
    task: str  # module of orce.tasks, or the path of a Python file like one
    # where its examples come from: {hub: OWNER/NAME}, {path: FOLDER} (replaces another file's hub),
    # {} if generated
    source: dict[str, Any]
    # sft and rl: examples of the warm start and of the alignment, where a method is trained;
    # validation: those that tune chooses on; test: those of the tables; shots: worked examples of
    # task qa. Splits from one source are disjoint
    splits: dict[Splits, Split]
    # tasks qa and choice: columns of the source, as names or dotted paths (choices.text). answer:
    # of task qa also several columns of accepted answers; choices: of task choice, the list of
    # options, or a column for each; labels: the options' published names; context: a passage before
    # the question; id: default the row's number
    fields: dict[Fields, str | Columns] | UnsetType = UNSET
    # task choice: the same options for every question (default: fields.choices)
    options: Choices | UnsetType = UNSET
    # task choice: an order drawn from the seed, for sets with the right one first
    shuffle: bool | UnsetType = UNSET
    # task choice: what an answer is that could be several things: index (a position from 0), index
    # from 1, letter, text, or what each value means, such as {0: "No", 1: "Yes"} (default: what
    # only one option fits)
    answer_is: Literal["index", "index from 1", "letter", "text"] | dict[Any, str] | UnsetType = (
        UNSET
    )
    # task qa: when two answers are the same (default: normalised)
    equality: Literal["exact", "normalised", "contains", "numeric", "math-verify"] | UnsetType = (
        UNSET
    )
    # task qa: the answer is what follows the last of these signs, such as ####
    answer_after: Text | UnsetType = UNSET
    # tasks qa and choice: a regular expression that finds the answer; its last match counts, and
    # its first group
    answer_pattern: Text | UnsetType = UNSET
    # tasks qa and choice: words of your own before an answer, such as Vastaus
    answer_marks: Words | UnsetType = UNSET
    # tasks qa and choice: a line after each question that does not say what is asked
    ask: Text | UnsetType = UNSET
    # the model thinks first and then gives a marked answer; a text without one is unread
    reasoning: bool = False
    # who grades: the task by its references, or the model of key grading
    grading: Literal["exact", "grader"] = "exact"
    # of a reply: its final answer, or its whole text too
    judge_reads: Literal["answer", "reasoning"] = "answer"
    remove_overlap: bool = False  # drop training examples that are also in a test set
    # dataset whose confidence LLMs judge this one (out of domain) (default: itself)
    confidence_from: str | None = None
    # dataset whose test split fits calibrations; its confidence_from is this one
    calibrate_on: str | None = None


class Api(Part, kw_only=True):
    # environment variable that holds its key (default: OPENAI_API_KEY)
    key: Variable | UnsetType = UNSET
    # that one job sends at most (requests) (default: no limit)
    requests_per_minute: Positive | UnsetType = UNSET
    # of one job's prompts and answers (tokens) (default: no limit)
    tokens_per_minute: Positive | UnsetType = UNSET
    # further fields of every request, such as reasoning_effort
    request: dict[str, Any] | UnsetType = UNSET
    # added to each answer's budget, for a model that thinks first (tokens)
    reasoning_tokens: Count | UnsetType = UNSET
    # ask for the log-probabilities of greedy answers, for the row likelihood
    logprobs: bool | UnsetType = UNSET


class Model(Part, kw_only=True):
    label: str  # name in the tables: one printable line, at most 100 characters
    # where its weights come from, {hub: OWNER/NAME} or {path: FOLDER} (replaces another file's
    # hub), or its server
    source: dict[str, Any]
    api: Api | None = None  # how its server is asked
    # answers already made, in place of stage one
    answers: GivenFile | None = None
    # model to train as confidence LLM for these answers (default: itself)
    confidence: str | None = None
    template_kwargs: dict[str, Any] = {}  # arguments of the chat template
    # worked examples in the prompt; null is the task's own
    shots: An[int, Meta(ge=0)] | None = None
    trains: bool = True  # false: it only answers the test set (target of a transfer)


class Engine(Part, kw_only=True):
    name: str  # module of orce.llm.engines: vllm, transformers or openai
    # that transformers computes together, readings too; lower it where memory is short (tokens)
    batch_tokens: Count
    gpu_memory_utilization: Share  # share of the GPU's memory that vllm takes
    concurrency: Count | UnsetType = UNSET  # parallel requests to a server (default: 16)
    # of one request as a whole, before it is sent again (seconds) (default: 600)
    timeout: Positive | UnsetType = UNSET
    # of a request that failed temporarily (tries) (default: 10)
    max_retries: An[int, Meta(ge=0)] | UnsetType = UNSET
    max_model_len: Count | None  # vllm's longest sequence; null is measured on the prompts (tokens)


class Answers(Part, kw_only=True):
    samples: Times  # K, answers sampled for each prompt (answers)
    # of the K samples; far above 1 they are noise, and most servers stop at 2
    temperature: Temperature
    top_p: Rate  # share of the probability that is sampled from
    max_tokens: Count | None  # budget of an answer; null is the task's own (tokens)
    shards: Times  # jobs per sampling, each with its own engine
    chunk: Count  # between two writes to disk (prompts)


class Grading(Part, kw_only=True):
    # the grader: a key of models, with weights or on a server; null with nli: exact grades
    model: str | None = None
    # its question, with question, references and answer (default: the package's own)
    prompt: Template | None = None
    max_tokens: Count = 16  # budget of its reply (tokens)
    # what says which samples mean the same; none is the task
    group: Literal["none", "grader", "nli"] = "none"
    nli: Source | None = None  # the NLI model: {hub, revision} or {path}
    # whether the grader grades too; false: it only says which samples mean the same
    grades: bool = True


class Confidence(Part, kw_only=True):
    candidates: An[int, Meta(ge=2, le=10_000)]  # M, sampled for each RL pair (confidences)
    # of sampling from P(c | question, answer); far above 1 the candidates are evenly spread
    temperature: Temperature
    shards: Times  # jobs per reading
    chunk: Count  # between two writes to disk (prompts)


class Lora(Part, kw_only=True):
    r: Count  # rank
    alpha: Positive  # scale
    dropout: Ratio  # dropout before the adapter
    target_modules: Texts  # adapted linear layers
    # adapt only so many of the last ones, and compute those below once an example; null is all
    # (layers)
    last_layers: Count | None


class Trainer(Part, kw_only=True):
    """The keys of `training` that change the resulting weights, and so are in a stage's settings."""

    method: Literal["lora", "full"]  # adapters or all weights
    lora: Lora  # adapters; unused where method is full
    checkpointing: bool  # recompute activations in the backward pass
    # questions about one passage stay together, so that it is computed once
    grouped: bool | UnsetType = UNSET
    # liger: RMSNorm, RoPE and SwiGLU by the package liger-kernel, on GPUs; losses differ by
    # rounding (default: torch's)
    kernels: Literal["liger"] | UnsetType = UNSET
    # trl: SFT and DPO by TRL's own trainers, on padded rows, with any attention (default: this
    # project's, on packed rows)
    trainer: Literal["trl"] | UnsetType = UNSET
    save_steps: Count  # between checkpoints (steps)


class Training(Trainer, kw_only=True):
    # of one pass on one GPU; out of memory, a training on one GPU takes half (tokens)
    micro_batch_tokens: Count
    # GPUs per training job; more than one starts it through torchrun
    gpus: An[int, Meta(ge=0)]
    # experiment trackers that get loss and learning rate of each step; changing them reruns nothing
    report_to: list[Literal["tensorboard", "wandb", "mlflow"]] = []


class Optimisation(Part, kw_only=True):
    epochs: Epochs  # passes over the examples (epochs)
    learning_rate: Rate  # peak learning rate; AdamW moves each weight by about as much in a step
    batch_size: Count  # examples of one optimizer step (examples)
    warmup_ratio: Ratio  # share of the steps that warm up
    # learning-rate schedule
    scheduler: Literal["cosine", "linear", "constant", "constant_with_warmup"]
    weight_decay: FromZero  # AdamW's weight decay


class WarmStart(Optimisation, kw_only=True):
    # what is stated for a pair: kappa, or 1 - kappa (for experiments only)
    target: Literal["kappa", "reversed"]
    epochs: EpochsFromZero  # passes over the examples; 0 leaves the model as it is (epochs)


class Preference(Optimisation, kw_only=True):
    beta: Positive  # strength of the pull to the reference model


class Alignment(Preference, kw_only=True):
    # how often candidates are sampled and (C, K) computed, before each training of dpo.epochs
    # (times)
    rounds: Rounds
    # C of (C, K): what the model states, or the mean of its distribution
    reference: Literal["stated", "mean"]
    leave_one_out: bool  # leave a prompt's own entry out of the reference set (C, K)
    # pairs that DPO sees: all, or of the SC reward those that raise r_s(C, K)
    accept: Literal["all", "improving"]


class Tune(Part, kw_only=True):
    beta: Values  # values of dpo.beta
    learning_rate: Values  # values of dpo.learning_rate
    epochs: Values  # values of dpo.epochs
    # what is to be low, of the configured readout
    metric: Literal["e_aurc", "aurc", "ece", "brier"]


class External(GivenFile, kw_only=True):
    label: str | UnsetType = UNSET  # its name in the tables


class Combined(Part, kw_only=True):
    # what it combines
    of: An[list[str], Meta(min_length=2, description="list of two methods or more")]
    fit: str  # how
    label: str | UnsetType = UNSET  # its name in the tables


class Evaluation(Part, kw_only=True):
    # confidence of a stated method: the value that it states, or the mean or mode of its
    # distribution
    readout: Literal["stated", "mean", "mode"]
    # replaces a confidence that could not be read at a second try either
    unparsed_confidence: Share
    bootstrap: Resamples  # of the 95 % intervals (resamples)


class Table(Part, kw_only=True):
    # its rows: the seven methods, the rewards, or transferred LLMs
    kind: Literal["main", "ablation", "transfer"]
    dataset: str  # a key of datasets
    models: Texts  # keys of models
    # its rows: methods (orce-nrd for one under another reward), in a list or with labels (default:
    # the paper's)
    methods: Texts | dict[str, str] | UnsetType = UNSET
    # model whose confidence LLMs are transferred; kind transfer needs it
    source: str | UnsetType = UNSET
    caption: str | UnsetType = UNSET  # replaces the caption (default: the paper's)
    label: Label | UnsetType = UNSET  # replaces the LaTeX label (default: tab:NAME)


class Resources(Part, kw_only=True):
    mem_mb: Count  # memory (MB)
    runtime: Count | None  # limit of its time; null is three times what the plan says (minutes)
    threads: Count  # CPU cores (threads)


class Config(Part, kw_only=True):
    # interpreter that runs the steps, FOLDER/python; null is the one that runs Snakemake
    python: str | None = None
    # every random choice derives from it; numpy takes seeds below 2**32
    seed: An[int, Meta(ge=0, le=4294967295)]
    datasets: dict[Name, Dataset]  # the data sets, by a name of your choice
    models: dict[Name, Model]  # the foundation models, by a name of your choice
    device: Literal["cuda", "cpu"]  # where models run
    dtype: Literal["bfloat16", "float16", "float32"]  # of the weights
    gpus: An[int, Meta(ge=0)]  # GPUs per generating or reading job
    engine: Engine  # what generates the answer LLM's texts
    answers: Answers  # stage one: answers sampled from the answer LLM
    # the model that grades the data sets with grading: grader (docs/grading.md)
    grading: Grading | None = None
    confidence: Confidence  # candidate confidences that DPO chooses from
    training: Training  # what the three trainings share
    sft: WarmStart  # the warm start (section 3.2)
    dpo: Alignment  # the alignment (section 3.3)
    # grid of dpo's settings, which `snakemake -- tune` tries on the validation split
    tune: Tune | None = None
    # settings of the methods, by name; methods of your own, by the path of a Python file;
    # confidences made elsewhere: {path: FILE.jsonl, label: TEXT}; rows combined: {of: [ROW, ROW],
    # fit: mean, product or logistic, label: TEXT}
    methods: dict[Own, str | dict[str, Any]]
    # rewards of your own, by the path of a Python file (docs/extending.md)
    rewards: dict[Own, Module] = {}
    evaluation: Evaluation  # what is stated on the test set and measured
    tables: dict[TableName, Table]  # the tables that can be asked for, by a name of your choice
    paper_tables: Texts  # which of them the target paper_tables renders
    resources: Resources  # of one job that loads a model; a profile can set them for each rule
