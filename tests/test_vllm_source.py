"""Every name of vllm that this package uses is in the pinned wheel for GPUs, whose source is read, not run: `make vllm-source`."""

import ast
import zipfile

import needs
import pytest
from conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.needs("vllm-source")]

ENGINE = ROOT / "workflow/orce/llm/engines/vllm.py"
OURS = [ENGINE, ROOT / "tools/gpu_check.py"]


def classes(module: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}


def fields(node: ast.ClassDef) -> set[str]:
    """Names of a class: its fields, its properties and what its methods set."""
    names = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    names |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    stored = (one for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
    return names | {one.attr for one in stored}


def arguments(node: ast.ClassDef, method: str) -> set[str]:
    (function,) = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == method)
    return {one.arg for one in [*function.args.args, *function.args.kwonlyargs]} - {"self"}


def keywords(nodes: list[ast.AST], called: str) -> set[str]:
    """Names of the keyword arguments in all calls of a function."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == called]
    assert calls, f"{called} is not called"
    return {word.arg for call in calls for word in call.keywords if word.arg}


def options() -> set[str]:
    """Keys of the options that the engine starts with."""
    tree = ast.walk(ast.parse(ENGINE.read_text()))
    (function,) = (node for node in tree if isinstance(node, ast.FunctionDef) and node.name == "_options")
    within = [*ast.walk(function)]
    keys = {key for node in within if isinstance(node, ast.Dict) for key in node.keys}
    keys |= {node.slice for node in within if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "options"}
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def test_options_parameters_what_is_read_of_a_reply_imports_and_environment_variables_exist():
    ours = [node for path in OURS for node in ast.walk(ast.parse(path.read_text()))]
    with zipfile.ZipFile(str(needs.vllm_wheel())) as archive:
        names = ("entrypoints/llm", "engine/arg_utils", "sampling_params", "outputs", "config/vllm", "v1/engine/llm_engine",
                 "distributed/parallel_state", "envs")  # fmt: skip
        wheel = {name: ast.parse(archive.read(f"vllm/{name}.py")) for name in names}
    llm = classes(wheel["entrypoints/llm"])["LLM"]
    given = options()
    assert len(given) >= 13 and {"tensor_parallel_size", "enable_prefix_caching"} <= given
    assert given <= arguments(llm, "__init__") | fields(classes(wheel["engine/arg_utils"])["EngineArgs"])
    assert keywords(ours, "self.llm.generate") <= arguments(llm, "generate")
    assert "seed" in keywords(ours, "SamplingParams") <= fields(classes(wheel["sampling_params"])["SamplingParams"])
    for module, name, read in (
        ("outputs", "CompletionOutput", {"token_ids", "finish_reason"}),
        ("config/vllm", "VllmConfig", {"use_v2_model_runner"}),
        ("entrypoints/llm", "LLM", {"model_config", "llm_engine"}),
        ("v1/engine/llm_engine", "LLMEngine", {"engine_core", "vllm_config"}),
    ):
        assert read <= fields(classes(wheel[module])[name])
    imports = [one for one in ours if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("vllm.")]
    assert {one.module for one in imports} == {"vllm.distributed"}
    assert "cleanup_dist_env_and_memory" in ast.unparse(wheel["distributed/parallel_state"])
    texts = {node.value for node in ours if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    named = {text for text in texts if text.startswith("VLLM_") and text.isupper()}
    known = {node.value for node in ast.walk(wheel["envs"]) if isinstance(node, ast.Constant)}
    assert len(named) >= 3 and named <= known
