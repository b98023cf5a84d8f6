"""Fetch the weights of a hub model into the hub's cache, so that no job waits on its GPU for them."""

from pathlib import Path
from typing import Annotated, Any

from orce.artefacts import store
from orce.errors import BadInput
from orce.runtime.hub import raise_refusal
from orce.runtime.process import say


def run(
    source: Annotated[dict[str, Any], "a JSON object: the model's hub, and its revision"],
    out: Annotated[str, "folder of the note that they are there"],
):
    """Fetches a hub model's weights; writes a note with their commit and sizes."""
    from orce.judge import judge
    from orce.llm import language_model

    hub = source["hub"]
    revision = source.get("revision")
    say(f"[fetch] {hub}")
    try:
        folder = judge.fetch_snapshot(hub, revision)
    except Exception as error:
        raise_refusal(error, "model", hub, revision)
        raise
    sizes = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            sizes[path.name] = path.stat().st_size
    if not any(name.endswith(".safetensors") for name in sizes):
        raise BadInput(
            f"{hub}, revision {revision or 'main'}: no weights as safetensors, in the cache or on the hub"
        )
    language_model.check_weights(source)
    say(f"[fetch] {hub}: {sum(sizes.values()) / 1e9:.1f} GB in {folder}")
    facts = source | {"commit": folder.name, "sizes": sizes} | store.origin(out, source)
    store.write_manifest(Path(out, "manifest.json"), facts)
