import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launch_models import DRAFT, TARGET

from specctl.core.errors import InvalidProfile, Refused
from specctl_launch.checks import CheckStatus, first_failure, ok, warn
from specctl_launch.plan import LaunchPlan
from specctl_launch.preflight import CheckResult, run_preflight

FAKE_SITE = "lib/site"


@pytest.fixture
def engine(tmp_path: Path):
    """Makes an interpreter whose environment has the given versions of sglang and torch (metadata only)."""

    def make(**versions: str) -> str:
        site = tmp_path / "engine" / FAKE_SITE
        for name, version in versions.items():
            info = site / f"{name}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        site.mkdir(parents=True, exist_ok=True)
        script = tmp_path / "engine" / "python"
        script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
        script.chmod(0o755)
        return str(script)

    return make


def by_name(plan: LaunchPlan, name: str) -> list[CheckResult]:
    return [result for result in run_preflight(plan, {}) if result.name == name]


def only_failure(plan: LaunchPlan) -> CheckResult:
    [failure] = [r for r in run_preflight(plan, {}) if r.status is CheckStatus.FAIL]
    return failure


def test_all_is_well(planner, engine):
    plan = planner(engine__python=engine(sglang="0.5.23", torch="2.13.0"))
    results = run_preflight(plan, {})
    assert {r.status for r in results} == {CheckStatus.OK}
    names = {"arguments", "environment", "target model", "draft model", "combinations", "engine", "port", "disk"}
    assert {r.name for r in results} == names
    assert first_failure(results) is None
    assert not plan.run_dir.exists()


def test_extra_checks_run_last(planner):
    def gpu(plan, environ):
        yield warn("gpu memory", f"{plan.port} {environ['A']}")

    plan = planner()
    results = run_preflight(plan, {"A": "1"}, extra=[gpu])
    assert results[-1] == warn("gpu memory", f"{plan.port} 1")


def test_the_first_failure_decides_the_error():
    refused = CheckResult(name="port", status=CheckStatus.FAIL, message="taken", remedy="Stop it")
    invalid = CheckResult(name="model", status=CheckStatus.FAIL, message="gone", invalid=True)
    first = first_failure([ok("a", ""), warn("b", ""), refused, invalid])
    assert isinstance(first, Refused)
    assert (str(first), first.exit_code) == ("port: taken. Stop it", 4)
    second = first_failure([invalid, refused])
    assert isinstance(second, InvalidProfile)
    assert second.exit_code == 2


# --- models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["target", "draft"])
def test_missing_model_folder(planner, role):
    plan = planner(**{f"model__{role}": "/no/such"})
    [failure] = [r for r in by_name(plan, f"{role} model") if r.status is CheckStatus.FAIL]
    assert failure.message == f"model.{role}: folder /no/such does not exist"
    assert failure.invalid


def test_model_folder_without_config(planner, tmp_path):
    (tmp_path / "empty").mkdir()
    [failure] = by_name(planner(model__target=str(tmp_path / "empty")), "target model")
    assert failure.message == f"model.target: {tmp_path}/empty has no config.json"
    (tmp_path / "empty" / "config.json").write_text("{")
    [failure] = by_name(planner(model__target=str(tmp_path / "empty")), "target model")
    assert "config.json cannot be read" in failure.message
    (tmp_path / "empty" / "config.json").write_text("[]")
    [failure] = by_name(planner(model__target=str(tmp_path / "empty")), "target model")
    assert "holds no JSON object" in failure.message


DRAFT_MISFITS = {
    "architecture": (
        {"architectures": ["LlamaForCausalLM"]},
        "its architecture is LlamaForCausalLM, not an EAGLE-3 head",
    ),
    "hidden size": ({"hidden_size": 128}, "it reads hidden states of size 128, the target's are 64"),
    "named target size": ({"target_hidden_size": 32}, "it reads hidden states of size 32, the target's are 64"),
    "vocabulary": ({"vocab_size": 500}, "vocab_size is 500, the target's 512"),
    "draft vocabulary": ({"draft_vocab_size": 513}, "draft_vocab_size 513 is above vocab_size 512"),
    "layer above": (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 7]}},
        "eagle_aux_hidden_state_layer_ids [1, 3, 7] must be different layers from 0 to 6 of the target",
    ),
    "same layer twice": (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 1, 5]}},
        "eagle_aux_hidden_state_layer_ids [1, 1, 5] must be different layers from 0 to 6 of the target",
    ),
}


@pytest.mark.parametrize("case", DRAFT_MISFITS)
def test_a_draft_that_does_not_fit_is_refused(case, planner, models):
    change, why = DRAFT_MISFITS[case]
    (models / "draft" / "config.json").write_text(json.dumps(DRAFT | change))
    [failure] = by_name(planner(), "draft model")
    assert failure.message == f"the draft in {models}/draft does not fit the target: {why}"
    assert isinstance(first_failure([failure]), Refused)


def test_a_draft_with_its_own_width_fits_the_target_it_names(planner, models):
    (models / "draft" / "config.json").write_text(json.dumps(DRAFT | {"hidden_size": 32, "target_hidden_size": 64}))
    assert [r.status for r in by_name(planner(), "draft model")] == [CheckStatus.OK]


def test_a_shallow_target_needs_named_layers(planner, models):
    (models / "target" / "config.json").write_text(json.dumps(TARGET | {"num_hidden_layers": 5}))
    (models / "draft" / "config.json").write_text(json.dumps({k: v for k, v in DRAFT.items() if k != "eagle_config"}))
    [failure] = by_name(planner(), "draft model")
    assert "SGLang's own choice needs 6 layers, the target has 5" in failure.message


def test_a_draft_with_a_shorter_context_is_warned_about(planner, models):
    (models / "draft" / "config.json").write_text(json.dumps(DRAFT | {"max_position_embeddings": 2048}))
    [result] = by_name(planner(), "draft context")
    assert result.status is CheckStatus.WARN
    assert "made for 2048 tokens of context, the target for 4096" in result.message


UNSUPPORTED = {
    "sliding": ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window attention"),
    "chunked": ({"layer_types": ["chunked_attention"]}, "chunked attention"),
    "linear": ({"layer_types": ["linear_attention", "full_attention"]}, "linear attention"),
    "mamba": ({"mamba_d_state": 16}, "Mamba layers"),
    "nested": ({"text_config": {**TARGET, "layer_types": ["sliding_attention"]}}, "sliding-window attention"),
    "mla on cpu": ({"kv_lora_rank": 512}, "latent attention (MLA), which the CPU engine lacks"),
    "heads": ({"num_attention_heads": 5}, "server.tp: 2 does not divide the target's 5 attention heads"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_targets_that_cannot_be_flipped(case, planner, models):
    change, why = UNSUPPORTED[case]
    (models / "target" / "config.json").write_text(json.dumps(TARGET | change))
    [failure] = by_name(planner(server__tp="2"), "target model")
    assert failure.status is CheckStatus.FAIL
    assert why in failure.message


def test_full_attention_everywhere_is_fine(planner, models):
    change = {"layer_types": ["full_attention"] * 8, "sliding_window": 4096}
    (models / "target" / "config.json").write_text(json.dumps(TARGET | change))
    assert [r.status for r in by_name(planner(), "target model")] == [CheckStatus.OK]


# --- arguments and environment -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("--port", "server.port"),
        ("--port=1", "server.port"),
        ("--tensor-parallel-size", "server.tp"),
        ("--tp", "server.tp"),
        ("--max-run", "server.max_running_requests"),
        ("--model", "model.target"),
        ("--speculative-num-steps", "modes"),
        ("--config", "server"),
        ("--api-key", "server.api_key_env"),
    ],
)
def test_arguments_that_the_profile_sets_are_refused_by_their_key(planner, argument, key):
    [failure] = by_name(planner(server__extra_args=json.dumps([argument, "1"])), "arguments")
    assert failure.message == f"server.extra_args: {argument.partition('=')[0]} is set by the profile"
    assert (failure.remedy, failure.invalid) == (f"Use {key}", True)


def test_other_arguments_pass(planner):
    [result] = by_name(planner(server__extra_args='["--log-requests", "--kv-cache-dtype", "auto"]'), "arguments")
    assert result.status is CheckStatus.OK


@pytest.mark.parametrize("name", ["SPECCTL_RUN", "PROMETHEUS_MULTIPROC_DIR", "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"])
def test_reserved_variables(planner, name):
    [failure] = by_name(planner(**{f"server__env__{name}": "1"}), "environment")
    assert (failure.message, failure.invalid) == (f"server.env: {name} is set by specctl", True)


def test_a_missing_key_is_a_failed_check(planner):
    [failure] = by_name(planner(server__api_key_env="MY_KEY"), "environment")
    assert failure.message == "server.api_key_env: the environment variable MY_KEY is not set"


# --- the engine --------------------------------------------------------------------------------------------------


def test_no_engine_installed(planner):
    [failure] = by_name(planner(), "engine")
    assert failure.message == "no CPU engine with SGLang 0.5.23 is installed"
    assert failure.remedy == "Run `specctl engine install --cpu`"
    [failure] = by_name(planner(engine__sglang="0.5.22"), "engine")
    assert failure.remedy == "Run `specctl engine install --cpu --sglang 0.5.22`"


def test_no_cuda_engine_named(planner):
    [failure] = by_name(planner(engine__kind="cuda"), "engine")
    assert failure.message == "engine.python is empty, and specctl installs CPU engines only"


def test_engine_path_that_does_not_exist(planner):
    [failure] = by_name(planner(engine__python="/no/python"), "engine")
    assert failure.message == "engine.python: /no/python does not exist"


def test_engine_versions(planner, engine):
    [failure] = by_name(planner(engine__python=engine(sglang="0.5.24", torch="2.13.0")), "engine")
    assert "SGLang 0.5.24 is installed for" in failure.message
    assert failure.remedy == 'Set engine.sglang to "0.5.24", or name another interpreter'
    assert isinstance(first_failure([failure]), Refused)


def test_a_local_build_of_the_version_is_that_version(planner, engine):
    [result] = by_name(planner(engine__python=engine(sglang="0.5.23+cu130", torch="2.14.1")), "engine")
    assert result.status is CheckStatus.OK
    assert "SGLang 0.5.23+cu130, torch 2.14.1" in result.message


@pytest.mark.parametrize("version", ["0.5.21", "0.5.22rc1", "0.4.99"])
def test_engines_that_are_too_old(planner, engine, version):
    [failure] = by_name(planner(engine__python=engine(sglang=version, torch="2")), "engine")
    assert failure.message == f"SGLang {version} cannot flip, 0.5.22 is the oldest that can"


def test_engine_without_sglang_or_torch(planner, engine):
    [failure] = by_name(planner(engine__python=engine(torch="2")), "engine")
    assert failure.message.startswith("SGLang is not installed for")


def test_engine_without_torch(planner, engine):
    [failure] = by_name(planner(engine__python=engine(sglang="0.5.23")), "engine")
    assert failure.message.startswith("torch is not installed for")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho broken >&2; exit 3\n", "does not run: broken"),
        ("#!/bin/sh\necho hello\n", "is not a Python interpreter"),
        ("#!/no/such/interpreter\n", "cannot be run: No such file or directory"),
    ],
)
def test_engines_that_do_not_run(planner, tmp_path, script, why):
    file = tmp_path / "python"
    file.write_text(script)
    file.chmod(0o755)
    [failure] = by_name(planner(engine__python=str(file)), "engine")
    assert failure.message == f"{file} {why}"


def test_an_engine_that_hangs_is_given_up(planner, tmp_path):
    from specctl_launch.probe import versions

    file = tmp_path / "python"
    file.write_text("#!/bin/sh\nexec sleep 60\n")
    file.chmod(0o755)
    assert versions(file, {"PATH": os.environ["PATH"]}, timeout_s=0.2) == f"{file} did not answer within 0.2 s"


# --- the machine -------------------------------------------------------------------------------------------------


def test_a_taken_port_names_its_holder(planner):
    code = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        port = holder.stdout.readline().strip()
        try:
            [failure] = by_name(planner(server__port=port), "port")
        finally:
            holder.kill()
    assert failure.message.startswith(f"server.port: port {port} is taken by pid {holder.pid} ({sys.executable} -c")
    assert "to another port or to 0" in (failure.remedy or "")
    assert isinstance(first_failure([failure]), Refused)


def test_a_port_in_time_wait_is_free(planner):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # the server's side closes first, so its address waits
        client.close()
    [result] = by_name(planner(server__port=str(port)), "port")
    assert result.status is CheckStatus.OK


def test_an_open_address_without_keys_is_warned_about(planner):
    [result] = by_name(planner(server__host="0.0.0.0"), "address")
    assert result.status is CheckStatus.WARN
    assert "anyone may use and flip the server" in result.message
    keys = {"server__api_key_env": "A", "server__admin_api_key_env": "B"}
    assert by_name(planner(server__host="0.0.0.0", **keys), "address") == []
    assert by_name(planner(), "address") == []


def test_little_disk(planner, monkeypatch):
    plan = planner(logs__max_mb="100", logs__keep_files="4")
    for free, status in ((100e6, CheckStatus.FAIL), (400e6, CheckStatus.WARN), (600e6, CheckStatus.OK)):
        monkeypatch.setattr("specctl_launch.preflight.free_bytes", lambda _folder, free=free: int(free))
        [result] = by_name(plan, "disk")
        assert result.status is status
        assert f"{free // 1e6:.0f} MB free at" in result.message


def test_batches_above_the_graphs_are_warned_about(planner):
    [result] = by_name(planner(engine__kind="cuda", server__cuda_graph_max_bs="4"), "cuda graphs")
    assert result.status is CheckStatus.WARN
    assert "server.cuda_graph_max_bs 4 is below server.max_running_requests 8" in result.message
    assert by_name(planner(engine__kind="cuda"), "cuda graphs") == []
