import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import specctl_demo
from specctl.config.load import load_profile
from specctl.config.paths import Paths
from specctl.core.errors import Refused
from specctl.core.modes import DEFAULT_MODES
from specctl_launch import overlay
from specctl_launch.plan import make_plan, prepare
from specctl_launch.render import plan_json, render_plan


def options(argv: tuple[str, ...]) -> dict[str, str]:
    """Flag -> value; "" for a flag without one."""
    found = {}
    for place, word in enumerate(argv):
        if word.startswith("--"):
            following = argv[place + 1] if place + 1 < len(argv) else "--"
            found[word] = "" if following.startswith("--") else following
    return found


def test_the_demo_plan(home: Paths):
    profile = load_profile("demo-cpu", {}, home)
    run = home.run_dir(3)
    plan = make_plan(profile, home, run_dir=run, run_marker="boot:uid:3", port=31234, inherited={"PATH": "/bin"})
    assert plan.argv == (
        str(home.engines_dir / "cpu-0.5.23/bin/python"),
        *("-m", "sglang.launch_server"),
        *("--host", "127.0.0.1", "--port", "31234"),
        *("--model-path", str(specctl_demo.target_dir()), "--served-model-name", "demo"),
        *("--device", "cpu", "--dtype", "float32", "--tp-size", "1", "--dp-size", "1"),
        *("--attention-backend", "intel_amx", "--page-size", "1"),
        *("--max-running-requests", "8", "--max-total-tokens", "20000", "--mem-fraction-static", "0.1"),
        *("--decode-log-interval", "10", "--speculative-algorithm", "EAGLE3"),
        *("--speculative-draft-model-path", str(specctl_demo.draft_dir())),
        *("--speculative-num-steps", "2", "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "16"),
        *("--enable-metrics", "--disable-cuda-graph", "--sleep-on-idle"),
        *("--uvicorn-access-log-exclude-prefixes", "/metrics", "/ready", "/server_info", "/v1/loads", "/model_info"),
    )
    assert plan.env_added == {
        "PYTHONUNBUFFERED": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
        "PYTHONPATH": f"{run}/overlay:{run}/overlay/specctl_engine/cpu/site",
        "PROMETHEUS_MULTIPROC_DIR": f"{run}/metrics",
        "SPECCTL_MODES": '[{"name":"tree","num_steps":2,"topk":4,"num_draft_tokens":16},'
        '{"name":"chain","num_steps":2,"topk":1,"num_draft_tokens":3},'
        '{"name":"off","num_steps":0,"topk":1,"num_draft_tokens":1}]',
        "SPECCTL_RUN": "boot:uid:3",
        "SPECCTL_STATUS_DIR": f"{run}/status",
        "SPECCTL_CPU": "1",
    }
    assert plan.url == "http://127.0.0.1:31234"
    assert (plan.boot_mode, plan.modes) == (DEFAULT_MODES[0], DEFAULT_MODES)
    assert not home.run_dir(3).exists(), "planning writes nothing"


def test_what_is_always_explicit(planner):
    for kind in ("cpu", "cuda"):
        given = options(planner(engine__kind=kind).argv)
        assert given["--max-running-requests"] == "8"
        assert given["--page-size"] == "1"
        assert given["--attention-backend"] == {"cpu": "intel_amx", "cuda": "flashinfer"}[kind]
        assert given["--decode-log-interval"] == "10"
        assert "--enable-metrics" in given
        assert "--skip-server-warmup" not in given


def test_cuda_gets_graphs_for_every_batch_and_nothing_of_the_cpu_engine(planner):
    plan = planner(engine__kind="cuda", engine__python=sys.executable)
    given = options(plan.argv)
    assert given["--cuda-graph-max-bs-decode"] == "8"
    assert given["--dtype"] == "auto"
    assert not {"--disable-cuda-graph", "--sleep-on-idle"} & given.keys()
    assert plan.env_added["PYTHONPATH"] == str(plan.overlay_dir)
    assert not {"SGLANG_USE_CPU_ENGINE", "SPECCTL_CPU", "CUDA_VISIBLE_DEVICES"} & plan.env_added.keys()


def test_the_boot_mode_is_the_largest_not_the_first(planner):
    modes = '[{name="off",num_steps=0,num_draft_tokens=1},{name="chain",num_steps=3,num_draft_tokens=4}]'
    plan = planner(modes=modes)
    given = options(plan.argv)
    assert (given["--speculative-num-steps"], given["--speculative-eagle-topk"]) == ("3", "1")
    assert given["--speculative-num-draft-tokens"] == "4"
    assert [mode["name"] for mode in json.loads(plan.env_added["SPECCTL_MODES"])] == ["off", "chain"]


def test_overlap_schedule(planner):
    assert "--disable-overlap-schedule" in planner(server__overlap_schedule="false").argv
    assert "SPECCTL_CPU_OVERLAP" not in planner(server__overlap_schedule="false").env_added
    assert planner(server__overlap_schedule="true").env_added["SPECCTL_CPU_OVERLAP"] == "1"
    cuda = planner(server__overlap_schedule="true", engine__kind="cuda")
    assert "SPECCTL_CPU_OVERLAP" not in cuda.env_added


def test_every_cpu_rank_is_bound(planner):
    binding = planner(server__tp="2", server__dp="2").env_added["SGLANG_CPU_OMP_THREADS_BIND"].split("|")
    assert len(binding) == 4
    assert {int(core) for core in binding} <= os.sched_getaffinity(0)


def test_environment_of_the_engine(planner):
    inherited = {"PATH": "/bin", "PYTHONHOME": "/x", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "/old"}
    inherited |= {
        "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND": "1",
        "PROMETHEUS_MULTIPROC_DIR": "/old",
        "SPECCTL_CPU": "1",
    }
    plan = planner(inherited=inherited, engine__kind="cuda")
    env = plan.environment(inherited)
    assert env["PATH"] == "/bin"
    assert (env["PYTHONPATH"], env["PROMETHEUS_MULTIPROC_DIR"]) == (str(plan.overlay_dir), str(plan.metrics_dir))
    gone = {"PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND", "SPECCTL_CPU"}
    assert not gone & env.keys()
    assert env["SGLANG_CUDA_COREDUMP_BEFORE_CRASH"] == "0"


def test_core_dumps_that_were_switched_on_are_waited_for(planner):
    inherited = {"CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1"}
    plan = planner(inherited=inherited, engine__kind="cuda")
    assert "SGLANG_CUDA_COREDUMP_BEFORE_CRASH" not in plan.environment(inherited)


def test_the_profiles_python_path_comes_after_ours(planner):
    assert planner(server__env__PYTHONPATH="/mine").env_added["PYTHONPATH"].endswith("/cpu/site:/mine")


@pytest.mark.parametrize(
    ("inherited", "profile", "wanted"),
    [
        ({}, None, None),
        ({"SGLANG_PLUGINS": "other"}, None, "other,specctl"),
        ({"SGLANG_PLUGINS": "specctl, other"}, None, "specctl, other"),
        ({"SGLANG_PLUGINS": "other"}, "third", "third,specctl"),
    ],
)
def test_a_list_of_plugins_never_excludes_ours(planner, inherited, profile, wanted):
    overrides = {"server__env__SGLANG_PLUGINS": profile} if profile else {}
    assert planner(inherited=inherited, **overrides).env_added.get("SGLANG_PLUGINS") == wanted


def test_a_proxy_does_not_get_the_servers_own_requests(planner):
    plan = planner(inherited={"http_proxy": "http://proxy:3128", "NO_PROXY": "corp"})
    assert plan.env_added["no_proxy"] == plan.env_added["NO_PROXY"] == "corp,127.0.0.1,localhost"
    assert "no_proxy" not in planner().env_added


def test_addresses(planner):
    assert planner(server__host="0.0.0.0", server__port="31000").url == "http://127.0.0.1:31000"
    assert planner(server__host="::1", server__port="31000").url == "http://[::1]:31000"
    first, second = planner(), planner()
    assert first.port > 1024
    assert second.port > 1024
    assert options(first.argv)["--port"] == str(first.port)
    with pytest.raises(Refused, match=r"server\.host: cannot listen on '192\.0\.2\.1'"):
        planner(server__host="192.0.2.1")


# --- the run folder ----------------------------------------------------------------------------------------------


def test_prepare_fills_the_run_folder_afresh(planner):
    plan = planner()
    prepare(plan, {})
    (plan.metrics_dir / "gauge_1.db").write_text("old")
    (plan.status_dir / "patch-1.json").write_text("old")
    (plan.overlay_dir / "left.py").write_text("old")
    prepare(plan, {})
    assert not any(plan.metrics_dir.iterdir())
    assert not any(plan.status_dir.iterdir())
    assert not (plan.overlay_dir / "left.py").exists()
    assert stat.S_IMODE(plan.run_dir.stat().st_mode) == 0o700
    assert not plan.secrets_file.exists()


def test_keys_go_by_a_private_file_and_appear_nowhere_else(planner):
    key = "s3cret-value"
    plan = planner(server__api_key_env="MY_KEY", server__admin_api_key_env="MY_ADMIN")
    environ = {"MY_KEY": key, "MY_ADMIN": f"{key}-admin"}
    prepare(plan, environ)
    assert json.loads(plan.secrets_file.read_text()) == {"api-key": key, "admin-api-key": f"{key}-admin"}
    assert stat.S_IMODE(plan.secrets_file.stat().st_mode) == 0o600
    assert options(plan.argv)["--config"] == str(plan.secrets_file)
    shown = repr(plan) + render_plan(plan) + json.dumps(plan_json(plan)) + str(plan.environment(environ))
    assert key not in shown


@pytest.mark.parametrize("value", [None, "", "-dash", "two\nlines"])
def test_an_unusable_key_is_refused_before_anything_is_written(planner, value):
    plan = planner(server__api_key_env="MY_KEY")
    with pytest.raises(Refused, match=r"server\.api_key_env: the"):
        prepare(plan, {} if value is None else {"MY_KEY": value})
    assert not plan.run_dir.exists()


def test_the_overlay_loads_as_a_plugin_in_another_interpreter(tmp_path: Path):
    overlay.write(tmp_path / "overlay")
    code = (
        "from importlib.metadata import entry_points, version\n"
        "[e] = entry_points(group='sglang.srt.plugins')\n"
        "import specctl_engine\n"
        "print(e.name, e.value, version('specctl-engine'), e.load().__module__, specctl_engine.__file__)"
    )
    # -S: no site-packages, so that the checkout's own entry point cannot answer.
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(tmp_path / "overlay")},
        capture_output=True,
        text=True,
        check=True,
    )
    name, value, version, module, file = done.stdout.split()
    assert (name, value, module) == ("specctl", "specctl_engine:activate", "specctl_engine")
    assert Path(file).parent == tmp_path / "overlay" / "specctl_engine"
    assert version


def test_the_overlay_holds_the_sources_and_no_caches(tmp_path: Path):
    folder = tmp_path / "overlay"
    overlay.write(folder)
    names = {str(p.relative_to(folder / "specctl_engine")) for p in (folder / "specctl_engine").rglob("*.py")}
    source = overlay.source_folder()
    assert names == {str(p.relative_to(source)) for p in source.rglob("*.py")}
    assert not list(folder.rglob("*.pyc"))
    assert overlay.cpu_site(folder).is_dir()


# --- shown -------------------------------------------------------------------------------------------------------


def test_the_rendered_command_is_the_command(planner):
    plan = planner(model__served_name="a b'c", server__extra_args='["--log-level", "info"]')
    text = render_plan(plan)
    command = text[text.index("command\n") + len("command\n") :].replace("\\\n", " ")
    assert tuple(shlex.split(command)) == plan.argv
    assert f"  PROMETHEUS_MULTIPROC_DIR={plan.metrics_dir}" in text
    assert "  (removed) PYTHONHOME" in text
    assert "modes     tree 2/4/16, chain 2/1/3, off 0/-/1; boots in tree" in text


def test_the_json_plan_is_json(planner):
    plan = planner()
    again = json.loads(json.dumps(plan_json(plan)))
    assert (again["argv"], again["url"], again["boot_mode"]) == (list(plan.argv), plan.url, "tree")
