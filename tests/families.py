"""The paper's three families for the tests: their tokenizers and chat templates out of packages, over two random layers.

The tokenizers' files come with the makers' own code, in wheels that stay in pytest's cache, so no hub is needed; a digest
says whether it is still the same file. Sizes are small, vocabularies whole.
"""

import hashlib
import importlib.util
import json
from pathlib import Path

import tokenizers
import wheels
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

NAMES = ("llama3", "qwen3", "mistral")
SIZE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip
PEAKS = 10  # scale of the LM head: random weights of the usual size give a nearly uniform distribution

# What is taken from a wheel. dashscope's own __init__.py would import its network client.
WHEELS = {
    "llama-models==0.3.0": ["__init__.py", "tokenizer_utils.py"]
    + [f"llama3/{name}" for name in ("__init__.py", "tokenizer.py", "tokenizer.model")],
    "dashscope==2.0.2": [f"tokenizers/{name}.py" for name in ("tokenizer_base", "qwen_tokenizer")]
    + ["resources/qwen.tiktoken"],
    "mistral-common==1.13.1": ["data/mistral_instruct_tokenizer_240323.model.v3"],
}
# Where the tokenizer's file then is, and the first digits of its SHA-256.
FILES = {
    "llama3": ("llama_models/llama3/tokenizer.model", "82e9d319"),
    "qwen3": ("dashscope/resources/qwen.tiktoken", "b2b1b8df"),
    "mistral": ("mistral_common/data/mistral_instruct_tokenizer_240323.model.v3", "9addc8bd"),
}
# What config.json, tokenizer_config.json and generation_config.json of the hub's models say.
MODELS = {
    "llama3": ("Llama", {"vocab_size": 128256, "rope_theta": 500000.0, "max_position_embeddings": 8192}),
    "qwen3": ("Qwen3", {"vocab_size": 151936, "rope_theta": 1000000.0, "max_position_embeddings": 40960}),
    "mistral": ("Mistral", {"vocab_size": 32768, "rope_theta": 1000000.0, "sliding_window": None}),
}
CLASSES = {"llama3": "PreTrainedTokenizerFast", "qwen3": "Qwen2Tokenizer", "mistral": "LlamaTokenizer"}
SPECIAL = {
    "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "qwen3": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "mistral": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
}
ENDS = {"llama3": [128001, 128009], "qwen3": [151645, 151643], "mistral": [2]}
TEMPLATE_KWARGS = {"llama3": {}, "qwen3": {"enable_thinking": False}, "mistral": {}}

# tiktoken's ranks know no pattern and no special tokens; these are the families' own.
DIGITS = {"llama3": r"\p{N}{1,3}", "qwen3": r"\p{N}"}
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
RESERVED = [f"<|reserved_special_token_{i}|>" for i in range(251)]
QWEN3 = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>",
    "</think>",
]  # fmt: skip
ADDED = {
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", *RESERVED[:4], "<|start_header_id|>", "<|end_header_id|>",
               RESERVED[4], "<|eot_id|>", *RESERVED[5:]],
    "qwen3": QWEN3,
}  # fmt: skip


def unpack(cache: Path) -> Path:
    """The folder with the makers' files, from wheels that are fetched into `cache` once."""
    unpacked = cache / "unpacked"
    wheels.unpack(WHEELS, cache, unpacked)
    for name, digest in FILES.values():
        assert hashlib.sha256((unpacked / name).read_bytes()).hexdigest().startswith(digest), f"{name} is another file"
    return unpacked


def build(family: str, unpacked: Path, folder: Path, seed: int = 0) -> None:
    """Write a model of the family into `folder`, as the hub would have it."""
    import torch
    import transformers

    name, more = MODELS[family]
    theta = {"rope_parameters": {"rope_type": "default", "rope_theta": more["rope_theta"]}}
    more = {key: value for key, value in more.items() if key != "rope_theta"} | theta
    config, model = (getattr(transformers, name + part) for part in ("Config", "ForCausalLM"))
    torch.manual_seed(seed)
    made = model(config(**SIZE, **more))
    with torch.no_grad():
        made.lm_head.weight.mul_(PEAKS)
    made.generation_config = transformers.GenerationConfig(eos_token_id=ENDS[family])
    made.save_pretrained(folder)
    save_tokenizer(family, unpacked / FILES[family][0], folder)


def save_tokenizer(family: str, source: Path, folder: Path) -> None:
    (mistral(source) if family == "mistral" else tiktoken(family, source)).save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": CLASSES[family], "model_max_length": 8192, **SPECIAL[family]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(template(family, source))


def tiktoken(family: str, source: Path) -> tokenizers.Tokenizer:
    """A tokenizer from tiktoken's ranks: LLaMA-3's and Qwen3's."""
    from transformers.convert_slow_tokenizer import TikTokenConverter

    made = TikTokenConverter(str(source), pattern=WORDS % DIGITS[family]).converted()
    plain = family == "qwen3"  # from <tool_call> on, Qwen3's added tokens are kept when special tokens are skipped
    first = ADDED[family].index("<tool_call>") if plain else len(ADDED[family])
    made.add_special_tokens([AddedToken(token, normalized=False) for token in ADDED[family][:first]])
    made.add_tokens([AddedToken(token, normalized=False) for token in ADDED[family][first:]])
    if family == "qwen3":
        made.normalizer = normalizers.NFC()
        made.model.ignore_merges = False
    else:
        begin = [("<|begin_of_text|>", 128000)]
        start = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=begin)
        made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), start])
    return made


def mistral(source: Path) -> tokenizers.Tokenizer:
    """Mistral's SentencePiece model as byte-fallback BPE: every split of a piece into two pieces is a merge."""
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=str(source))
    vocabulary = {pieces.id_to_piece(i): i for i in range(pieces.vocab_size())}
    merges = [
        (-pieces.get_score(i), vocabulary[piece[:cut]], vocabulary[piece[cut:]], (piece[:cut], piece[cut:]))
        for piece, i in vocabulary.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    model = BPE(vocabulary, [pair for *_, pair in sorted(merges)], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    control = [piece for piece, i in vocabulary.items() if pieces.is_control(i) or pieces.is_unknown(i)]
    made.add_special_tokens([AddedToken(piece, normalized=False) for piece in control])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def template(family: str, source: Path) -> str:
    """The family's chat template: from TRL, and Mistral's from its makers."""
    if family == "mistral":
        from mistral_common.integrations.chat_templates.chat_templates import convert_tokenizer_to_chat_template

        return convert_tokenizer_to_chat_template(source)
    trl = importlib.util.find_spec("trl")
    return (Path(trl.origin).parent / "chat_templates" / f"{family}.jinja").read_text()
