"""What a machine lacks for the jobs of a run: GPUs, their driver, a compiler, whole weights, the hub's
answer and room for what it sends.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orce.errors import BadInput, one_line
from orce.runtime import lease
from orce.runtime.hub import raise_refusal
from orce.runtime.process import say

# The oldest driver that starts programs of a CUDA (NVIDIA's page CUDA Compatibility), and the
# capability that a format needs.
DRIVERS = {"13": 580, "12": 525, "11": 450}
CAPABLE = {"bfloat16": 8.0}
# What the jobs' interpreter has: torch's version and its CUDA, read without starting torch, the
# CUDA that the driver's library starts (NVIDIA's cuda-compat brings a newer one than the driver's
# own), and the folder of Python's headers.
ASK = """
import contextlib, ctypes, importlib.util, json, pathlib, runpy, sysconfig
torch, starts = importlib.util.find_spec("torch"), ctypes.c_int()
version = runpy.run_path(str(pathlib.Path(torch.origin).with_name("version.py"))) if torch else {}
with contextlib.suppress(OSError):
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(starts))
print(json.dumps([version.get("__version__"), version.get("cuda"), starts.value // 1000, sysconfig.get_path("include")]))
"""
# The same interpreter on folders of weights: a line for each one that is not whole, read from the
# files' headers.
ASK_WEIGHTS = """
import sys
from orce.errors import BadInput
from orce.llm import language_model
for key, path in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        language_model.check_weights({"path": path})
    except BadInput as error:
        print(f"config: {key}: {error}")
"""
# Drivers before 510 do not know the second field, and then say nothing.
SMI = [
    ["nvidia-smi", f"--query-gpu=driver_version{more}", "--format=csv,noheader"]
    for more in (",compute_cap", "")
]
PATIENCE = 10  # seconds until the hub answers


def missing_here(python: str | None, dtype: str) -> list[str]:
    """What this machine lacks for jobs on its visible GPUs, each in a line with its remedy. python:
    the jobs' interpreter.
    """
    asked = subprocess.run(
        [python or sys.executable, "-c", ASK], check=True, capture_output=True, text=True
    ).stdout
    version, cuda, starts, headers = json.loads(asked)
    devices = lease.visible()[0]
    cards = []
    chosen = [f"--id={','.join(devices)}"] if not any("MIG" in device for device in devices) else []
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        for query in SMI:
            shown = subprocess.run(
                [*query, *chosen], check=False, capture_output=True, text=True, timeout=30
            ).stdout
            cards = cards or re.findall(r"^ *(\d+)\.[\d.]+(?:, *(\d+\.\d))?", shown, re.MULTILINE)
    driver, capability = (
        min((float(card[i]) for card in cards if card[i]), default=1e9) for i in (0, 1)
    )
    major = (cuda or "0").partition(".")[0]
    needed = DRIVERS.get(major, 0)
    built = "is not installed" if version is None else f"{version} is a build for the CPU"
    old = f"driver {driver:g} is too old for torch {version}, whose CUDA {cuda} needs {needed} or newer"
    kernels = "with which Triton builds its kernels at run time; apt-get install gcc, or set CC"
    lacks = {
        f"torch {built}; install envs/gpu.txt, or set device: cpu": cuda is None,
        f"{old}; update the driver, or see docs/one-node.md, Drivers": driver < needed
        and starts < int(major),
        f"a GPU of capability {capability} has no {dtype}, which needs {CAPABLE.get(dtype)}; set dtype: float32": (
            capability < CAPABLE.get(dtype, 0)
        ),
        f"no C compiler, {kernels}": not os.environ.get("CC")
        and not any(map(shutil.which, ("gcc", "clang"))),
        f"no Python.h in {headers}, which these kernels include; apt-get install {Path(headers).name}-dev": (
            not Path(headers, "Python.h").exists()
        ),
    }
    return [line for line, lacking in lacks.items() if lacking]


def broken_weights(config, loaded: set[str]) -> list[str]:
    """What is wrong with the folders of weights that a run reads, each in a line: those of some
    models, and of the grader. Those that a rule makes are checked as they are made, and a hub's
    when they have been fetched.
    """
    sharing = {config.models[name].source.get("model") for name in loaded}
    grading = config.grading
    graders = {grading.model} if grading is not None else set()
    read = [name for name in config.models if name in loaded | sharing | graders]
    sources = {f"models.{name}.source": config.models[name].source for name in read}
    if grading is not None:
        sources["grading.nli"] = grading.nli or {}
    keys_and_paths: list[str] = []
    for key, source in sources.items():
        if "path" in source and source["path"] not in keys_and_paths:
            keys_and_paths += [f"{key}.path", source["path"]]
    if not keys_and_paths:
        return []
    asked = [config.python or sys.executable, "-c", ASK_WEIGHTS, *keys_and_paths]
    library = {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        asked, env=os.environ | library, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


def check_hub(sources: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Raises BadInput if the hub refuses a source, (model or data set, {hub, revision}), or no disk
    holds the weights.
    """
    asked = {(source["hub"], source.get("revision")): what for what, source in sources}
    if not asked:
        return
    from huggingface_hub import (
        HfApi,
        constants,
        get_hf_file_metadata,
        hf_hub_url,
        try_to_load_from_cache,
    )

    missing = 0
    for (name, revision), what in {} if constants.HF_HUB_OFFLINE else asked.items():
        kind = what.removesuffix(" set").replace("data", "dataset")
        try:
            about = HfApi().repo_info(
                name, revision=revision, repo_type=kind, files_metadata=True, timeout=PATIENCE
            )
            files = {
                file.rfilename: file.size or 0 for file in getattr(about, "siblings", None) or []
            }
            # A gated repository is described to everyone, and its files are sent to those with
            # access.
            url = hf_hub_url(
                name, max(files, key=files.__getitem__), repo_type=kind, revision=about.sha
            )
            get_hf_file_metadata(url, timeout=PATIENCE)
            for file, size in files.items() if kind == "model" else ():
                wanted = re.fullmatch(r"(?!consolidated)[^/]+\.safetensors", file)
                missing += (
                    size
                    if wanted and try_to_load_from_cache(name, file, revision=about.sha) is None
                    else 0
                )
        except Exception as error:  # noqa: BLE001 - the hub's library and those below it have no common class
            raise_refusal(error, what, name, revision)
            remedy = "only what its cache has can be used; without a network: docs/one-node.md, Models and data"
            return say(f"[preflight] {name}: the hub does not answer ({one_line(error)}); {remedy}")
    cache = Path(constants.HF_HUB_CACHE).absolute()
    free = shutil.disk_usage(
        next(folder for folder in (cache, *cache.parents) if folder.exists())
    ).free
    if missing > free:
        sizes = f"the weights need {missing / 1e9:.1f} GB more, and {free / 1e9:.1f} GB are free"
        raise BadInput(f"{cache}: {sizes}; make room, or set HF_HOME to a folder with more")


def gpus_needed(jobs: list, limit: int | None, local: bool) -> int:
    """The most GPUs that a job needs. Raises BadInput if they are more than it can get. jobs: the
    resources of each job to run. limit: N of --resources gpu=N, or None. local: the jobs run on
    this machine.
    """
    needed = max((job.get("gpus_wanted", job.get("gpu", 0)) for job in jobs), default=0)
    if needed == 0:
        return 0
    a_job = f"a job needs {lease.in_words(needed)}"
    given = f"--resources gpu={limit}"
    if limit is not None and limit < needed:
        raise BadInput(f"{given}, but {a_job}; give it gpu={needed} or more, or {lease.LOWER}")
    if local:
        devices, origin = lease.visible()
        shown = f"this machine shows {len(devices)} ({origin})"
        if needed > len(devices):
            raise BadInput(f"{a_job} and {shown}; run it where there are more, or {lease.LOWER}")
        if limit is not None and limit > len(devices):
            raise BadInput(f"{given}, but {shown}; give it gpu={len(devices)}")
    return needed


def processor() -> str:
    """The processor of this machine, on whose instructions the last digits of a model's numbers
    depend.
    """
    lines = {}
    with contextlib.suppress(OSError):  # not Linux
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            lines.setdefault(name.strip(), value.strip())
    wide = ", AVX-512" if "avx512f" in lines.get("flags", "").split() else ""
    return f"{lines.get('model name') or platform.machine()}{wide}"
