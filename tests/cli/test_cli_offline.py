import json
from pathlib import Path

import pytest

from client.contract_daemon import ready_snapshot
from specctl.cli.offline import doctor
from specctl.config.paths import paths
from specctl.core.snapshot import Gpu
from specctl_launch.checks import CheckStatus


def test_profiles_are_listed_shown_and_validated(specctl, home: Path) -> None:
    folder = home / "config" / "profiles"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("[engine]\nkind = 1\n")
    listed = specctl("profiles", "list")
    assert listed.code == 0
    assert "demo-cpu" in listed.out
    assert "INVALID" in next(line for line in listed.out.splitlines() if line.startswith("broken"))
    assert {"name", "source", "path", "problem"} <= set(json.loads(specctl("profiles", "list", "--json").out)[0])
    assert specctl("profiles", "show", "demo-cpu").out.count("[engine]") == 1
    assert json.loads(specctl("profiles", "show", "demo-cpu", "--json").out)["engine"]["kind"] == "cpu"
    assert specctl("profiles", "validate", "demo-cpu") == (0, "demo-cpu: valid\n", "")
    both = specctl("profiles", "validate", "broken", "demo-cpu")
    assert (both.code, both.out) == (2, "demo-cpu: valid\n")
    assert json.loads(specctl("profiles", "schema").out)["$schema"]


def test_plan_prints_and_its_failed_check_is_the_exit_code(specctl, home: Path) -> None:
    done = specctl("plan", "demo-cpu", "--json", "--set", "server.port=34567")
    plan = json.loads(done.out)
    assert plan["port"] == 34567
    failed = [check for check in plan["checks"] if check["status"] == "fail"]
    assert "no CPU engine" in str(failed)
    assert done.code in (2, 4)
    assert done.err.count("\n") == 1
    assert not list(home.iterdir()), "a plan leaves nothing behind"
    assert "sglang.launch_server" in specctl("plan", "demo-cpu").out


def test_engine_check_fails_where_none_is_installed(specctl) -> None:
    done = specctl("engine", "check")
    assert done.code == 1
    assert "specctl engine install --cpu" in done.out


def test_doctor_passes_on_an_empty_home_and_fails_on_a_bad_folder(specctl, home: Path) -> None:
    done = specctl("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.out)}
    assert done.code == 0
    assert checks["python"]["status"] == "ok"
    assert "msgspec" in checks["packages"]["message"]
    assert checks["daemon"]["message"].startswith("none runs at")
    (home / "run").mkdir(mode=0o755)
    (home / "state").write_text("a file")
    bad = specctl("doctor")
    assert bad.code == 1
    lines = [line for line in bad.out.splitlines() if line.startswith("FAIL")]
    assert len(lines) == 2
    assert "cannot be written" in lines[0]
    assert "chmod 700" in lines[1]


def test_doctor_asks_the_daemon_about_gpus(home: Path) -> None:
    assert doctor.gpu_check(None, lambda _: None).status is CheckStatus.WARN
    assert doctor.gpu_check(None, lambda _: "/usr/bin/nvidia-smi").status is CheckStatus.OK
    assert "no NVML" in doctor.gpu_check(ready_snapshot(gpu_note="no NVML"), lambda _: "/x").message
    two = ready_snapshot(gpus=(Gpu(index=0, uuid="a", name="H200"), Gpu(index=1, uuid="b", name="H200")))
    assert doctor.gpu_check(two, lambda _: None).message == "2 GPUs: H200"


def test_doctor_names_a_full_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(free: int):
        return lambda _path: type("Usage", (), {"free": free})

    for free, status in ((10, CheckStatus.FAIL), (10**9, CheckStatus.WARN), (10**11, CheckStatus.OK)):
        monkeypatch.setattr(doctor.shutil, "disk_usage", usage(free))
        assert next(doctor.disk_checks(paths())).status is status


def test_doctor_refuses_an_old_python() -> None:
    assert doctor.python_check((3, 10, 9)).status is CheckStatus.FAIL
    assert doctor.python_check((3, 11, 0)).status is CheckStatus.OK
