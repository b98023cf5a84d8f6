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
import yaml
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

FACTS = Path(__file__).parent / "data" / "families.yaml"
FAMILIES = yaml.safe_load(FACTS.read_text())["families"]
WHEELS = yaml.safe_load(FACTS.read_text())["wheels"]
NAMES = tuple(FAMILIES)
FILES = {name: (family["file"], family["sha256"]) for name, family in FAMILIES.items()}
ENDS = {name: family["ends"] for name, family in FAMILIES.items()}
TEMPLATE_KWARGS = {name: family["template_kwargs"] for name, family in FAMILIES.items()}
SIZE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip
PEAKS = 10  # scale of the LM head: random weights of the usual size give a nearly uniform distribution
# tiktoken's ranks know no pattern and no special tokens; these are the families' own.
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
RESERVED = [f"<|reserved_special_token_{i}|>" for i in range(251)]
LLAMA3 = [
    "<|begin_of_text|>", "<|end_of_text|>", *RESERVED[:4], "<|start_header_id|>",
    "<|end_header_id|>", RESERVED[4], "<|eot_id|>", *RESERVED[5:],
]  # fmt: skip


def unpack(cache: Path) -> Path:
    """The folder with the makers' files, from wheels that are fetched into `cache` once."""
    unpacked = cache / "unpacked"
    wheels.unpack(WHEELS, cache, unpacked)
    for name, digest in FILES.values():
        assert hashlib.sha256((unpacked / name).read_bytes()).hexdigest().startswith(digest), f"{name} is another file"
    return unpacked


def build(family: str, unpacked: Path, folder: Path) -> None:
    """Write a model of the family into `folder`, as the hub would have it."""
    import torch
    import transformers

    facts = FAMILIES[family]
    config = getattr(transformers, facts["model"] + "Config")
    model = getattr(transformers, facts["model"] + "ForCausalLM")
    torch.manual_seed(0)
    made = model(config(**SIZE, **facts["config"]))
    with torch.no_grad():
        made.lm_head.weight.mul_(PEAKS)
    made.generation_config = transformers.GenerationConfig(eos_token_id=ENDS[family])
    made.save_pretrained(folder)
    save_tokenizer(family, unpacked / FILES[family][0], folder)


def save_tokenizer(family: str, source: Path, folder: Path) -> None:
    (mistral(source) if family == "mistral" else tiktoken(family, source)).save(str(folder / "tokenizer.json"))
    settings = {"model_max_length": 8192, **FAMILIES[family]["tokenizer_config"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(template(family, source))


def tiktoken(family: str, source: Path) -> tokenizers.Tokenizer:
    """A tokenizer from tiktoken's ranks: LLaMA-3's and Qwen3's."""
    from transformers.convert_slow_tokenizer import TikTokenConverter

    made = TikTokenConverter(str(source), pattern=WORDS % FAMILIES[family]["digits"]).converted()
    special = LLAMA3 if family == "llama3" else FAMILIES[family]["special_tokens"]
    made.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    kept = FAMILIES[family]["added_tokens"]  # also where special tokens are skipped
    made.add_tokens([AddedToken(token, normalized=False) for token in kept])
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
    from transformers.tokenization_utils_base import generate_merges

    pieces = SentencePieceProcessor(model_file=str(source))
    vocabulary = {pieces.id_to_piece(i): i for i in range(pieces.vocab_size())}
    merges = generate_merges(vocabulary, {piece: pieces.get_score(i) for piece, i in vocabulary.items()})
    model = BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
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
