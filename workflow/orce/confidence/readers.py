"""The reader of a confidence LLM that the configuration names: transformers or vllm."""


def open(settings: dict, adapters: list[str], longest: int | None = None):
    """A reader for the confidence LLMs in the folders `adapters` and for the untrained model, whichever is asked for.

    settings: model, batch_size, engine (transformers or vllm) and, for vllm, gpu_memory_utilization and max_model_len.
    `longest`: tokens of the longest prompt with BUDGET behind it (orce.llm.engines.longest), for vllm. The reader has
    ``read(prompts, state_text=True, adapter=None)``, ``force(prompts, adapter=None)`` and ``close()``. At most one
    model is in memory: ask for folders of whole models (training.method: full) one after the other.
    """
    if settings["engine"] == "transformers":
        from orce.confidence.reader import SharedReader

        return SharedReader(settings["model"], settings["batch_size"])
    from orce.confidence.vllm_reader import VllmReader

    memory = {key: settings[key] for key in ("gpu_memory_utilization", "max_model_len") if key in settings}
    return VllmReader(settings["model"] | memory, adapters, longest)
