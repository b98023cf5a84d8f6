"""What a machine lacks for the jobs of a run: GPUs, their driver, a compiler, whole weights, the hub's
answer and room for what it sends.
"""

import contextlib
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from orce.errors import BadInput, one_line
from orce.runtime import lease
from orce.runtime.hub import raise_refusal
from orce.runtime.process import say

# The oldest driver that starts programs of a CUDA (NVIDIA's page CUDA Compatibility).
DRIVERS = {13: 580, 12: 525, 11: 450}
CAPABILITIES = {"bfloat16": 8.0}  # that a format needs
# Asks the jobs' interpreter for torch's version and its CUDA, without starting torch; the CUDA that
# the driver's library starts (NVIDIA's cuda-compat brings a newer one than the driver's own); and
# the folder of Python's headers.
ASK = """
import contextlib, ctypes, importlib.util, json, pathlib, runpy, sysconfig
torch, starts = importlib.util.find_spec("torch"), ctypes.c_int()
version = runpy.run_path(str(pathlib.Path(torch.origin).with_name("version.py"))) if torch else {}
with contextlib.suppress(OSError):
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(starts))
print(json.dumps([version.get("__version__"), version.get("cuda"), starts.value // 1000, sysconfig.get_path("include")]))
"""
# Asks it about folders of weights, {path: key}: a line for each one that is not whole, by its files'
# headers.
ASK_WEIGHTS = """
import json, sys
from orce.errors import BadInput
from orce.llm import language_model
for path, key in json.loads(sys.argv[1]).items():
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
CARD = re.compile(r"^ *(\d+)\.[\d.]+(?:, *(\d+\.\d))?", re.MULTILINE)  # driver and capability
PATIENCE = 10  # seconds until the hub answers


def missing_here(python: str | None, dtype: str) -> list[str]:
    """What this machine lacks for jobs on its visible GPUs, each in a line with its remedy. python:
    the jobs' interpreter.
    """
    asked = subprocess.run(
        [python or sys.executable, "-c", ASK], check=True, capture_output=True, text=True
    )
    version, cuda, starts, headers = json.loads(asked.stdout)
    driver, capability = _driver_and_capability()
    lacks = []
    if cuda is None:
        built = "is not installed" if version is None else f"{version} is a build for the CPU"
        lacks.append(f"torch {built}; install envs/gpu.txt, or set device: cpu")
    major = int((cuda or "0").partition(".")[0])
    needed = DRIVERS.get(major, 0)
    if driver < needed and starts < major:
        old = f"driver {driver:g} is too old for torch {version}, whose CUDA {cuda} needs {needed} or newer"
        lacks.append(f"{old}; update the driver, or see docs/one-node.md, Drivers")
    least = CAPABILITIES.get(dtype, 0)
    if capability < least:
        lacks.append(
            f"a GPU of capability {capability} has no {dtype}, which needs {least}; set dtype: float32"
        )
    if not os.environ.get("CC") and not any(map(shutil.which, ("gcc", "clang"))):
        kernels = "with which Triton builds its kernels at run time; apt-get install gcc, or set CC"
        lacks.append(f"no C compiler, {kernels}")
    if not Path(headers, "Python.h").exists():
        install = f"apt-get install {Path(headers).name}-dev"
        lacks.append(f"no Python.h in {headers}, which these kernels include; {install}")
    return lacks


def _driver_and_capability() -> tuple[float, float]:
    """The lowest driver version and compute capability of the visible GPUs; infinite if unknown."""
    devices = lease.visible()[0]
    chosen = [f"--id={','.join(devices)}"]
    if any("MIG" in device for device in devices):
        chosen = []  # nvidia-smi takes no such id
    cards = []
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        for query in SMI:
            done = subprocess.run(
                [*query, *chosen], check=False, capture_output=True, text=True, timeout=30
            )
            cards = CARD.findall(done.stdout)
            if cards:
                break
    driver = min((float(driver) for driver, _ in cards), default=math.inf)
    capability = min((float(number) for _, number in cards if number), default=math.inf)
    return driver, capability


def broken_weights(config, loaded: set[str]) -> list[str]:
    """What is wrong with the folders of weights that a run reads, each in a line: those of some
    models, and of the grader. Those that a rule makes are checked as they are made, and a hub's
    when they have been fetched.
    """
    grading = config.grading
    read = loaded | {config.models[name].source.get("model") for name in loaded}
    if grading is not None:
        read.add(grading.model)
    sources = {}
    for name, model in config.models.items():
        if name in read:
            sources[f"models.{name}.source"] = model.source
    if grading is not None:
        sources["grading.nli"] = grading.nli or {}
    keys: dict[str, str] = {}  # of each folder, the first that names it
    for key, source in sources.items():
        if "path" in source:
            keys.setdefault(source["path"], f"{key}.path")
    if not keys:
        return []
    python = config.python or sys.executable
    done = subprocess.run(
        [python, "-c", ASK_WEIGHTS, json.dumps(keys)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]
        remedy = "install envs/gpu.txt there, or envs/cpu.txt"
        return [f"config: python: {python} cannot import the library ({reason}); {remedy}"]
    return done.stdout.splitlines()


def check_hub(asked: dict[tuple[str, str | None], str]) -> None:
    """Raises BadInput if the hub refuses one of {(name, revision): "model" or "data set"}, or no disk
    holds the weights.
    """
    if not asked:
        return
    from huggingface_hub import constants

    missing = 0
    for (name, revision), what in {} if constants.HF_HUB_OFFLINE else asked.items():
        try:
            missing += _bytes_to_fetch(name, revision, what)
        except Exception as error:  # noqa: BLE001 - the hub's library and those below it have no common class
            raise_refusal(error, what, name, revision)
            remedy = "only what its cache has can be used; without a network: docs/one-node.md, Models and data"
            return say(f"[preflight] {name}: the hub does not answer ({one_line(error)}); {remedy}")
    cache = Path(constants.HF_HUB_CACHE).absolute()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if missing > free:
        sizes = f"the weights need {missing / 1e9:.1f} GB more, and {free / 1e9:.1f} GB are free"
        raise BadInput(f"{cache}: {sizes}; make room, or set HF_HOME to a folder with more")


def _bytes_to_fetch(name: str, revision: str | None, what: str) -> int:
    """Bytes of a model's weights that the hub's cache does not have; 0 for a data set. Raises what
    the hub's library raises.
    """
    from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    kind = "model" if what == "model" else "dataset"
    about = HfApi().repo_info(
        name, revision=revision, repo_type=kind, files_metadata=True, timeout=PATIENCE
    )
    sizes = {file.rfilename: file.size or 0 for file in getattr(about, "siblings", None) or []}
    # A gated repository is described to everyone, and its files are sent to those with access.
    largest = max(sizes, key=sizes.__getitem__)
    url = hf_hub_url(name, largest, repo_type=kind, revision=about.sha)
    get_hf_file_metadata(url, timeout=PATIENCE)
    if kind == "dataset":
        return 0
    missing = 0
    for file, size in sizes.items():
        is_weights = re.fullmatch(r"(?!consolidated)[^/]+\.safetensors", file)
        if is_weights and try_to_load_from_cache(name, file, revision=about.sha) is None:
            missing += size
    return missing


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
