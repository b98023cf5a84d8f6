"""The keys of the configuration: types and limits, and beside each key what it means.

orce.config.load reads a configuration with them; docs/configuration.md and the errors take the meanings from the comments here. `default`
in a comment says what a key is that is left out, where the struct does not show it. A key that stays UNSET goes into the settings of a
stage only where a user writes it.
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
Own = An[str, Meta(pattern=r"^[a-z][a-z0-9_]*\Z", description="small letters, digits and underscores, a letter first")]
Text = An[str, Meta(min_length=1, description="text that is not empty")]
Texts = An[list[str], Meta(min_length=1, description="list of texts")]
Count = An[int, Meta(ge=1)]
Positive = An[int, Meta(gt=0)] | An[float, Meta(gt=0)]
Temperature = An[int, Meta(gt=0, le=10)] | An[float, Meta(gt=0, le=10)]
Module = An[str, Meta(pattern=r"\.py\Z", description="path of a Python file")]
Rate = An[int, Meta(gt=0, le=1)] | An[float, Meta(gt=0, le=1)]
Ratio = An[int, Meta(ge=0, lt=1)] | An[float, Meta(ge=0, lt=1)]
FromZero = An[int, Meta(ge=0)] | An[float, Meta(ge=0)]
Share = An[int, Meta(ge=0, le=1)] | An[float, Meta(ge=0, le=1)]
Choices = An[list[Text], Meta(min_length=2, max_length=26, description="list of 2 to 26 texts")]
Columns = An[list[str], Meta(min_length=1, max_length=26, description="list of up to 26 columns")]
Fraction = An[str, Meta(pattern=r"^[1-9][0-9]*/[1-9][0-9]*\Z", description="share such as 1/3")]
Values = An[list[Positive], Meta(min_length=1, description="list of numbers > 0")]


Repository = An[str, Meta(pattern=r"^[^/\s]+/[^/\s]+\Z", description="OWNER/NAME")]
Address = An[
    str, Meta(pattern=r"^https?://[^@\s]+\Z", description="http:// or https:// and an address, without a key in it")
]
Variable = An[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z", description="name of an environment variable")]


class Part(Struct, kw_only=True):
    """A mapping of the configuration."""


GivenFields = dict[Literal["id", "question", "answers", "greedy", "answer", "correct", "confidence"], str | Texts]


class Given(Part, kw_only=True):
    # JSON lines, JSON, CSV, TSV or Parquet; {dataset} and {model} in it are the cell's
    path: Text
    # {key of a given line: its column}; a dot leads into nested JSON, and several columns make a list (default: the keys themselves)
    fields: GivenFields | UnsetType = UNSET


class Source(TypedDict, total=False):
    """Where examples or weights come from; orce.config.sources has the forms that it may have."""

    hub: Repository  # repository id on the hub
    revision: str | None  # branch, tag or commit; the commit used is recorded in the provenance (default: main)
    config: str  # of data: the hub's name of one of its configurations
    path: Text  # local folder or file; it replaces a hub of another file
    size: Count  # of generated data: its examples (default: all)
    package: str  # of weights: installed Python package that carries them
    file: str  # name of its GGUF file
    server: Address  # address of an OpenAI-compatible server, mostly with /v1; the key is read from the environment
    model: Text  # the server's name of the model; without a server another model whose weights this one shares


class Split(Part, kw_only=True):
    origin: str = field(name="from")  # split of the source
    # how many; 1/3 is that share of the source's split; null is what the others leave (examples)
    size: Count | Fraction | None | UnsetType = UNSET

    @property
    def share(self) -> int | str | None:
        """Its size; None for what the other splits leave."""
        return None if isinstance(self.size, UnsetType) else self.size


Splits = Literal["sft", "rl", "validation", "test", "shots"]
Fields = Literal["question", "answer", "choices", "labels", "context", "id"]


class Dataset(Part, kw_only=True):
    task: str  # module of orce.tasks, or the path of a Python file like one
    # where its examples come from: {hub: OWNER/NAME}, {path: FOLDER} (which replaces a hub of another file), or {} for a generated
    # set
    source: dict[str, Any]
    # sft and rl: examples of the warm start and of the alignment, where a method is trained; validation: examples that tune
    # chooses on; test: examples of the tables; shots: worked examples of task qa. Splits from one source split are disjoint
    splits: dict[Splits, Split]
    # tasks qa and choice: columns of the source, as names or dotted paths (choices.text). answer: of task qa also several
    # columns of accepted answers; choices: of task choice, the list of options, or a column for each; labels: the options'
    # published names; context: a passage before the question; id: default the row's number
    fields: dict[Fields, str | Columns] | UnsetType = UNSET
    # task choice: the same options for every question, such as ["Yes", "No"] (default: fields.choices)
    options: Choices | UnsetType = UNSET
    # task choice: options in an order drawn from the seed, where the right one always comes first (default: False)
    shuffle: bool | UnsetType = UNSET
    # task choice: what an answer is that could be several things: index (a position from 0), index from 1, letter,
    # text, or what each value means, such as {0: "No", 1: "Yes"} (default: what only one option fits)
    answer_is: Literal["index", "index from 1", "letter", "text"] | dict[Any, str] | UnsetType = UNSET
    # task qa: when two answers are the same (default: normalised)
    equality: Literal["exact", "normalised", "contains", "numeric", "math-verify"] | UnsetType = UNSET
    # task qa: the answer is what follows the last of these signs in its column, such as #### (default: none)
    answer_after: Text | UnsetType = UNSET
    # tasks qa and choice: a regular expression of your own that finds the answer in a model's text; its last match
    # counts, and its first group (default: none)
    answer_pattern: Text | UnsetType = UNSET
    # tasks qa and choice: a line after each question, for sets whose text does not say what is asked (default: none)
    ask: Text | UnsetType = UNSET
    # the model thinks first and then gives a marked answer; a text without a marked answer is unread
    reasoning: bool = False
    # who says whether an answer is right: the task by its references, or the grader of the key grading
    grading: Literal["exact", "grader"] = "exact"
    # what the confidence LLM reads of a reply: its final answer, or its whole text and the final answer
    judge_reads: Literal["answer", "reasoning"] = "answer"
    remove_overlap: bool = False  # drop training examples that are also in a test set
    confidence_from: str | None = None  # dataset whose confidence LLMs judge this one (out of domain) (default: itself)
    # dataset on whose test split calibrations (METHOD+platt) are fitted; its confidence_from is this one (default:
    # none)
    calibrate_on: str | None = None


class Api(Part, kw_only=True):
    """how its server is asked"""

    # environment variable that holds its key (default: OPENAI_API_KEY)
    key: Variable | UnsetType = UNSET
    requests_per_minute: Positive | UnsetType = UNSET  # that one job sends at most (requests) (default: no limit)
    # that one job asks for at most, prompts and answers (tokens) (default: no limit)
    tokens_per_minute: Positive | UnsetType = UNSET
    # further fields of every request, such as reasoning_effort or prompt_cache_key (default: {})
    request: dict[str, Any] | UnsetType = UNSET
    # added to the budget of each answer for a model that thinks first (tokens) (default: 0)
    reasoning_tokens: Count | UnsetType = UNSET
    # ask for the log-probabilities of greedy answers (row likelihood) (default: False)
    logprobs: bool | UnsetType = UNSET


class Model(Part, kw_only=True):
    label: str  # name in the tables: one printable line, at most 100 characters
    # where its weights come from, {hub: OWNER/NAME} or {path: FOLDER} (which replaces a hub of another file), or the server that
    # answers for it
    source: dict[str, Any]
    api: Api | None = None  # default: none
    answers: Given | None = None  # answers already made, of this model alone (default: the key answers)
    confidence: str | None = None  # model to train as confidence LLM for these answers (default: itself)
    template_kwargs: dict[str, Any] = {}  # arguments of the chat template
    shots: An[int, Meta(ge=0)] | None = None  # worked examples in the prompt; null is the task's own
    trains: bool = True  # false: it only answers the test set (target of a transfer)


class Engine(Part, kw_only=True):
    """what generates the answer LLM's texts"""

    name: str  # module of orce.llm.engines: vllm, transformers or openai
    # computed together by the transformers engine and in reading confidences; lower it where memory is short (tokens)
    batch_tokens: Count
    gpu_memory_utilization: Share  # share of the GPU's memory that vllm takes
    concurrency: Count | UnsetType = UNSET  # in flight at a server (requests) (default: 16)
    # that one request may take as a whole, before it is sent again (seconds) (default: 600)
    timeout: Positive | UnsetType = UNSET
    max_retries: An[int, Meta(ge=0)] | UnsetType = UNSET  # of a request that failed temporarily (tries) (default: 10)
    max_model_len: Count | None  # vllm's longest sequence; null is measured on the prompts (tokens)


class Answers(Part, kw_only=True):
    """stage one: answers sampled from the answer LLM"""

    path: Text | None = None  # answers already made, in place of stage one: as models.NAME.answers
    fields: GivenFields | UnsetType = UNSET  # as models.NAME.answers
    samples: Count  # K, answers sampled for each prompt (answers)
    temperature: Temperature  # of the K samples; far above 1 they are noise, and most servers stop at 2
    top_p: Rate  # share of the probability that is sampled from
    max_tokens: Count | None  # budget of an answer; null is the task's own (tokens)
    shards: Count  # that each sampling is split into, each with its own engine (jobs)
    chunk: Count  # between two writes to disk (prompts)


class Grading(Part, kw_only=True):
    """the model that grades the answers of the data sets with grading: grader (docs/grading.md)"""

    model: str  # the grader: a key of models; one with weights, or on a server
    # its question: a Jinja template with question, references and answer (default: the package's own)
    prompt: An[str, Meta(pattern=r"\.j2\Z", description="path of a .j2 file")] | None = None
    max_tokens: Count = 16  # budget of its reply (tokens)
    # what says which samples mean the same: the task by its texts, the grader, or an NLI model
    group: Literal["none", "grader", "nli"] = "none"
    nli: Source | None = None  # the NLI model: {hub, revision} or {path} (default: none)


class Confidence(Part, kw_only=True):
    """candidate confidences that DPO chooses from"""

    candidates: An[int, Meta(ge=2)]  # M, sampled for each RL pair (confidences)
    temperature: Temperature  # of sampling from P(c | question, answer); far above 1 the candidates are evenly spread
    shards: Count  # that each reading is split into (jobs)
    chunk: Count  # between two writes to disk (prompts)


class Lora(Part, kw_only=True):
    """adapters; unused where method is full"""

    r: Count  # rank
    alpha: Positive  # scale
    dropout: Ratio  # dropout before the adapter
    target_modules: Texts  # adapted linear layers
    last_layers: Count | None  # adapt only so many of the last ones; null is all (layers)


class Training(Part, kw_only=True):
    """what the three trainings share"""

    method: Literal["lora", "full"]  # adapters or all weights
    lora: Lora
    checkpointing: bool  # recompute activations in the backward pass
    # keep questions about one passage together when an epoch is shuffled: DROP's training then computes each passage
    # once (default: False)
    grouped: bool | UnsetType = UNSET
    # of one forward and backward pass on one GPU, whatever batch_size is; out of memory, a training on one GPU takes half
    # (tokens)
    micro_batch_tokens: Count
    save_steps: Count  # between checkpoints (steps)
    gpus: An[int, Meta(ge=0)]  # of one training job; more than one starts it through torchrun (GPUs)
    # each GPU of a training keeps its share of the weights (FSDP2), for a model that one cannot hold
    shard: bool = False
    # experiment trackers that get loss and learning rate of each step; changing them reruns nothing
    report_to: list[Literal["tensorboard", "wandb", "mlflow"]] = []


class Optimisation(Part, kw_only=True):
    epochs: Positive  # passes over the examples (epochs)
    # peak learning rate; AdamW moves each weight by about as much in a step
    learning_rate: Rate
    batch_size: Count  # examples of one optimizer step (examples)
    warmup_ratio: Ratio  # share of the steps that warm up
    scheduler: Literal["cosine", "linear", "constant", "constant_with_warmup"]  # learning-rate schedule
    weight_decay: FromZero  # AdamW's weight decay


class WarmStart(Optimisation, kw_only=True):
    """the warm start (section 3.2)"""

    target: Literal["kappa", "reversed"]  # what is stated for a pair: kappa, or 1 - kappa (for experiments only)
    epochs: FromZero  # passes over the examples; 0 leaves the model as it is (epochs)


class Preference(Optimisation, kw_only=True):
    """what the training of the alignment reads"""

    beta: Positive  # strength of the pull to the reference model


class Alignment(Preference, kw_only=True):
    """the alignment (section 3.3)"""

    rounds: Count  # how often candidates are sampled and (C, K) computed (times)
    # C of the reference set (C, K): what the model states, or the mean of its distribution
    reference: Literal["stated", "mean"]
    leave_one_out: bool  # leave a prompt's own entry out of the reference set (C, K)


class Tune(Part, kw_only=True):
    """grid of dpo's settings, which `snakemake -- tune` tries on the validation split"""

    beta: Values  # values of dpo.beta
    learning_rate: Values  # values of dpo.learning_rate
    epochs: Values  # values of dpo.epochs
    metric: Literal["e_aurc", "aurc", "ece", "brier"]  # what is to be low, of the configured readout


class External(Given, kw_only=True):
    """a method whose confidences were made elsewhere"""

    label: str | UnsetType = UNSET  # its name in the tables


class Combined(Part, kw_only=True):
    """a method that combines others"""

    of: An[list[str], Meta(min_length=2, description="list of two methods or more")]  # what it combines
    fit: str  # how
    label: str | UnsetType = UNSET  # its name in the tables


class Evaluation(Part, kw_only=True):
    """what is stated on the test set and measured"""

    # confidence of a stated method: the value that it states, or the mean or mode of its distribution
    readout: Literal["stated", "mean", "mode"]
    unparsed_confidence: Share  # replaces a confidence that could not be read at a second try either
    bootstrap: Count  # of the 95 % intervals (resamples)


class Table(Part, kw_only=True):
    kind: Literal["main", "ablation", "transfer"]  # its rows: the seven methods, the rewards, or transferred LLMs
    dataset: str  # a key of datasets
    models: Texts  # keys of models
    # its rows: a list of methods (orce-nrd for one under another reward), or methods with labels (default: the
    # paper's)
    methods: Texts | dict[str, str] | UnsetType = UNSET
    # model whose confidence LLMs are transferred (kind transfer needs it) (default: none)
    source: str | UnsetType = UNSET
    caption: str | UnsetType = UNSET  # replaces the caption (default: the paper's)
    label: str | UnsetType = UNSET  # replaces the LaTeX label; letters, digits and . : _ / + - (default: tab:NAME)


class Resources(Part, kw_only=True):
    """of one job that loads a model; a profile can set them for each rule"""

    mem_mb: Count  # memory (MB)
    runtime: Count  # limit of its time (minutes)
    threads: Count  # CPU cores (threads)


class Config(Part, kw_only=True):
    """ORCE configuration"""

    python: str | None = None  # interpreter that runs the steps; null is the one that runs Snakemake
    seed: An[int, Meta(ge=0, le=4294967295)]  # every random choice derives from it; numpy takes seeds below 2**32
    datasets: dict[Name, Dataset]  # the data sets, by a name of your choice
    models: dict[Name, Model]  # the foundation models, by a name of your choice
    device: Literal["cuda", "cpu"]  # where models run
    dtype: Literal["bfloat16", "float16", "float32"]  # of the weights
    gpus: An[int, Meta(ge=0)]  # of a job that generates or reads (GPUs)
    engine: Engine
    answers: Answers
    grading: Grading | None = None  # default: none
    confidence: Confidence
    training: Training
    sft: WarmStart
    dpo: Alignment
    tune: Tune | None = None
    # settings of the methods, by name; methods of your own, by the path of a Python file; confidences made elsewhere,
    # as {path: FILE.jsonl, label: TEXT}; rows combined, as {of: [ROW, ROW], fit: mean, product or logistic, label:
    # TEXT}
    methods: dict[Own, str | dict[str, Any]]
    rewards: dict[Own, Module] = {}  # rewards of your own, by the path of a Python file (docs/extending.md)
    evaluation: Evaluation
    tables: dict[str, Table]  # the tables that can be asked for, by a name of your choice
    paper_tables: Texts  # which of them the target paper_tables renders
    resources: Resources
