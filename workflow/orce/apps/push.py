"""A trained confidence LLM as a folder ready for the Hugging Face hub: weights, tokenizer, generation config, card."""

import json
import shutil
from pathlib import Path
from typing import Any

from orce.apps.cards import Base
from orce.artefacts import files, store
from orce.errors import BadInput
from orce.judging import judge
from orce.runtime.progress import say

NOT_COPIED = ("README.md", "training_log.json", "manifest.json", "adapter_config.json", "training_args.bin")


def add_arguments(parser):
    parser.add_argument("folder", help="results/DATASET/MODEL/STAGE, as a training step left it")
    parser.add_argument("--out", required=True, help="the folder to make")
    parser.add_argument("--merge", action="store_true", help="whole weights instead of an adapter")
    parser.add_argument("--base-model", metavar="ID", help="hub id (ID or ID@REVISION) of the base, if it was a folder")
    parser.add_argument("--license", metavar="ID", help="the hub's id of a licence (default: the base model's)")
    parser.add_argument("--repo", metavar="ID", help="upload the folder to this repository on the hub")
    parser.add_argument("--private", action="store_true", help="make a new repository private")


def run(args):
    from orce.apps.cards import model as card
    from orce.llm.adapters import is_adapter

    folder, out = Path(args.folder), Path(args.out)
    if out.exists():
        raise BadInput(f"{out} exists; name a new folder")
    trained = card.gather(folder)
    base = named_base(args.base_model, trained.settings)
    adapter = is_adapter(folder) and not args.merge
    if adapter and base is None:
        raise BadInput(
            f"{folder}: its base model is a local folder; name it on the hub by --base-model, or use --merge"
        )
    license = args.license or license_of(base)
    with files.new_folder(out) as work:
        if adapter and base is not None:
            adapter_files(folder, base, work)
        else:
            whole_model(folder, work)
        write_manifest(trained.manifest, base, work)
        name = (args.repo or f"{trained.dataset}-{trained.model}-{folder.resolve().name}").split("/")[-1]
        data = card.front_matter(trained, name, base, license, not adapter)
        place = args.repo or "."
        (work / "README.md").write_text(card.text(trained, data, place, base, not adapter), encoding="utf-8")
    if base is None:
        say("[push] the card names no base model, because the run's was a local folder; name it by --base-model")
    say(f"[push] {out} is ready")
    if args.repo:
        upload(out, args.repo, args.private)


def named_base(name: str | None, settings: dict[str, Any]) -> Base | None:
    """The base model, or None if only a local folder is known."""
    if name is not None:
        hub, _, revision = name.partition("@")
        return Base(hub, revision or None)
    source = settings.get("model", {}).get("source", {})
    return Base(source["hub"], source.get("revision")) if "hub" in source else None


def license_of(base: Base | None) -> str:
    """The licence that the base model's card on the hub names. Raises BadInput if there is none."""
    from huggingface_hub import ModelCard
    from huggingface_hub.errors import EntryNotFoundError

    found = None
    if base is not None:
        try:
            found = ModelCard.load(base.hub).data.to_dict().get("license")
        except (OSError, ValueError, EntryNotFoundError) as error:  # no network, no such model, a broken card, no card
            say(f"[push] the card of {base.hub} cannot be fetched ({str(error).splitlines()[0]})")
    if found is None:
        raise BadInput("the base model's licence is not known; name it by --license, for example --license apache-2.0")
    return found


def adapter_files(folder: Path, base: Base, work: Path) -> None:
    """The adapter as it is, over a base model on the hub."""
    from transformers import AutoTokenizer, GenerationConfig

    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name not in NOT_COPIED:
            shutil.copyfile(path, work / path.name)
    config = json.loads((folder / "adapter_config.json").read_text())
    config |= {"base_model_name_or_path": base.hub, "revision": base.revision}
    files.write_json(work / "adapter_config.json", config)
    source = judge.base_of(folder, judge.settings_of(folder))
    try:
        place, revision = source.get("path") or source["hub"], source.get("revision") or "main"
        known = GenerationConfig.from_pretrained(place, revision=revision)
    except OSError:  # a base model need not have one
        known = GenerationConfig()
    save_generation(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), known, work)


def whole_model(folder: Path, work: Path) -> None:
    """Whole weights, an adapter merged into its base."""
    lm = judge.load(folder).reader.lm
    lm.model.save_pretrained(work, safe_serialization=True)
    lm.tokenizer.save_pretrained(work)
    save_generation(lm.tokenizer, lm.model.generation_config, work)


def save_generation(tokenizer, known, work: Path) -> None:
    """Write the generation config that reads a confidence: greedy, a few tokens, up to the model's own end tokens."""
    from transformers import GenerationConfig

    from orce.judging.distribution import STATEMENT_TOKENS
    from orce.llm.chat import end_ids

    ends = sorted(end_ids(tokenizer, known))
    # Greedy decoding ignores the temperature, but without one pipeline() sets its own and warns about it.
    reading = {"do_sample": False, "temperature": 1.0, "max_new_tokens": STATEMENT_TOKENS}
    GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id, **reading).save_pretrained(work)


def write_manifest(manifest: dict[str, Any], base: Base | None, work: Path) -> None:
    """Write the manifest that judge.load needs, without paths of the machine that trained the model."""
    settings = {key: value for key, value in manifest.get("settings", {}).items() if key != "contents"}
    model = {key: value for key, value in settings.get("model", {}).items() if key != "source"}
    model |= {"source": base._asdict()} if base else {}
    kept = {key: value for key, value in manifest.items() if key not in ("file", "inputs")}
    facts = kept | {"settings": settings | {"model": model}} | store.folder_digests(work)
    store.write_manifest(work / "manifest.json", facts)


def upload(out: Path, repo: str, private: bool, kind: str = "model") -> None:
    from huggingface_hub import HfApi

    try:
        HfApi().create_repo(repo, exist_ok=True, private=private, repo_type=kind)
        say(f"[push] {HfApi().upload_folder(folder_path=out, repo_id=repo, repo_type=kind)}")
    except (OSError, ValueError) as error:  # what the hub's client raises: no network, no token, a wrong name
        reason = str(error).splitlines()[0]
        raise BadInput(
            f"{repo}: not uploaded ({reason}); {out} is whole, upload it later: hf upload {repo} {out}{'' if kind == 'model' else f' --repo-type {kind}'}"
        ) from None
