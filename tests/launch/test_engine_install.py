"""The install with a real virtual environment and a stand-in for pip, since the real packages are 1.7 GB."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from specctl.config.paths import Paths
from specctl.core.errors import Refused, SpecctlError, UsageError
from specctl_launch import engines, install
from specctl_launch.checks import CheckStatus
from specctl_launch.install import InstallProgress, install_cpu
from specctl_launch.stamp import Stamp, lock_hash

PIP = """
import json, os, pathlib, sys
log = pathlib.Path(os.environ["FAKE_PIP_LOG"])
with log.open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if os.environ.get("FAKE_PIP_FAIL", "nothing") in sys.argv:
    print("Collecting something")
    print("ERROR: No matching distribution found")
    print("a hint")
    sys.exit(1)
site = pathlib.Path(__file__).parent
def put(name, version):
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
if "-r" in sys.argv:
    for line in pathlib.Path(sys.argv[-1]).read_text().splitlines():
        if line.startswith("sglang=="):
            put("sglang", line.split()[0].removeprefix("sglang=="))
else:
    put("torch", sys.argv[-1].removeprefix("torch=="))
    if "FAKE_PIP_CUDA" in os.environ:
        (site / "nvidia").mkdir()
print("Successfully installed")
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An interpreter whose `-m venv` makes an environment with the stand-in instead of pip."""
    (tmp_path / "fakepip.py").write_text(PIP)
    script = tmp_path / "base-python"
    script.write_text(
        "#!/bin/sh\n"
        f'"{sys.executable}" -m venv --without-pip "$3" || exit\n'
        f'for site in "$3"/lib/python*/site-packages; do cp "{tmp_path}/fakepip.py" "$site/pip.py"; done\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("FAKE_PIP_LOG", str(tmp_path / "pip.log"))
    return str(script)


def calls(tmp_path: Path) -> list[list[str]]:
    log = tmp_path / "pip.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_an_install_from_nothing(home: Paths, base: str, tmp_path: Path):
    told: list[InstallProgress] = []
    folder = install_cpu(home, python=base, progress=told.append)
    assert folder == home.engines_dir / "cpu-0.5.23"
    torch, packages = calls(tmp_path)
    assert torch[-1] == "torch==2.13.0"
    assert "--index-url" not in torch
    assert {"--no-deps", "--require-hashes"} <= set(packages)
    assert packages[-1].endswith("engine-cpu-0.5.23.lock")
    assert "about 1.7 GB with a CPU build" in told[0].detail, "the size is said before anything starts"
    assert "GB free at" in told[0].detail
    assert [(p.step, p.name) for p in told if not p.detail] == [(1, "environment"), (2, "torch"), (3, "packages")]
    assert told[-1].detail.startswith("SGLang 0.5.23, torch 2.13.0")
    [result] = engines.check(home)
    assert (result.status, result.name) == (CheckStatus.OK, "engine cpu-0.5.23")


def test_a_second_install_does_nothing_again(home: Paths, base: str, tmp_path: Path):
    install_cpu(home, python=base)
    before = calls(tmp_path)
    install_cpu(home, python=base)
    assert calls(tmp_path) == before


def test_options(home: Paths, base: str, tmp_path: Path):
    folder = install_cpu(
        home, python=base, sglang="0.5.22", torch_version="2.12.1", torch_index="https://example.org/cpu"
    )
    torch, packages = calls(tmp_path)
    assert torch[torch.index("--index-url") + 1] == "https://example.org/cpu"
    assert torch[-1] == "torch==2.12.1"
    assert "--index-url" not in packages
    assert packages[-1].endswith("engine-cpu-0.5.22.lock")
    assert folder.name == "cpu-0.5.22"


def test_a_cuda_build_of_torch_is_pointed_out(home: Paths, base: str, monkeypatch: pytest.MonkeyPatch):
    told: list[InstallProgress] = []
    install_cpu(home, python=base, progress=told.append)
    assert [p.detail for p in told if p.name == "torch size"] == ["0.0 GB"]
    monkeypatch.setenv("FAKE_PIP_CUDA", "1")
    install_cpu(home, python=base, torch_version="2.14.1", progress=told.append)
    assert "a CUDA build; --torch-index" in [p.detail for p in told if p.name == "torch size"][-1]


def test_a_failed_step_is_told_and_the_next_run_goes_on_there(home, base, tmp_path, monkeypatch, planner):
    monkeypatch.setenv("FAKE_PIP_FAIL", "--require-hashes")
    with pytest.raises(SpecctlError) as caught:
        install_cpu(home, python=base)
    folder = home.engines_dir / "cpu-0.5.23"
    assert caught.value.message == (
        "installing the engine failed at step 3 (packages): ERROR: No matching distribution found"
    )
    assert str(folder / "install.log") in (caught.value.remedy or "")
    assert "Collecting something" in (folder / "install.log").read_text()

    [result] = engines.check(home)
    assert (result.status, result.message) == (
        CheckStatus.FAIL,
        f"the engine in {folder} is not completely installed",
    )
    with pytest.raises(Refused, match="goes on where it stopped"):
        engines.engine_python(planner().profile, home)

    monkeypatch.delenv("FAKE_PIP_FAIL")
    install_cpu(home, python=base)
    assert [call[-1].rpartition("/")[2] for call in calls(tmp_path)] == [
        "torch==2.13.0",
        "engine-cpu-0.5.23.lock",
        "engine-cpu-0.5.23.lock",
    ], "torch was not installed again"
    assert engines.engine_python(planner().profile, home) == folder / "bin/python"


def test_another_torch_is_installed_over_the_first(home: Paths, base: str, tmp_path: Path):
    install_cpu(home, python=base)
    install_cpu(home, python=base, torch_version="2.12.1")
    assert [c[-1].rpartition("/")[2] for c in calls(tmp_path)][2:] == ["torch==2.12.1", "engine-cpu-0.5.23.lock"], (
        "the locked packages come last, torch's own requirements must not win"
    )


def test_an_older_lock_is_noticed_and_renewed(home: Paths, base: str, tmp_path: Path):
    folder = install_cpu(home, python=base)
    Stamp(python="3", torch="2.13.0", lock="old").write(folder)
    [result] = engines.check(home)
    assert (result.status, "older list of packages" in result.message) == (CheckStatus.WARN, True)
    install_cpu(home, python=base)
    assert Stamp.read(folder).lock == lock_hash("0.5.23")
    assert len(calls(tmp_path)) == 3


def test_a_broken_environment_says_how_to_remove_it(home: Paths, base: str):
    folder = install_cpu(home, python=base)
    (folder / "bin/python").unlink()
    [result] = engines.check(home)
    assert result.status is CheckStatus.FAIL
    assert f"remove {folder}" in (result.remedy or "")
    install_cpu(home, python=base)
    [result] = engines.check(home)
    assert result.status is CheckStatus.OK


def test_a_damaged_stamp_counts_as_none(tmp_path: Path):
    for text in ("{", "[]", '{"other": 1}'):
        (tmp_path / "specctl-engine.json").write_text(text)
        assert Stamp.read(tmp_path) == Stamp()


def test_too_little_disk(home: Paths, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(install, "free_bytes", lambda _folder: 3_000_000_000)
    with pytest.raises(Refused) as caught:
        install_cpu(home, python=base)
    assert "needs 4.0 GB of disk while it is installed, 3.0 GB free at" in caught.value.message
    assert not calls(tmp_path)
    assert not (home.engines_dir / "cpu-0.5.23" / "bin").exists()


def test_two_installs_at_once(home: Paths, base: str):
    inside, go_on = threading.Event(), threading.Event()

    def first(progress: InstallProgress) -> None:
        inside.set()
        assert go_on.wait(60)

    thread = threading.Thread(target=install_cpu, args=(home,), kwargs={"python": base, "progress": first})
    thread.start()
    try:
        assert inside.wait(60)
        with pytest.raises(Refused, match="another install is at work"):
            install_cpu(home, python=base)
    finally:
        go_on.set()
        thread.join()


def test_a_killed_install_keeps_others_out_until_its_pip_ends(home: Paths, base: str, tmp_path: Path):
    """The lock is inherited by what the install runs, which outlives it when it is killed."""
    Path(base).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.05; done\n")
    code = (
        "import sys; from specctl.config.paths import paths; from specctl_launch.install import install_cpu; "
        "install_cpu(paths({'SPECCTL_HOME': sys.argv[1]}), python=sys.argv[2])"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(home.data_dir.parent), base]) as installing:
        while not (tmp_path / "started").exists():
            assert installing.poll() is None
            time.sleep(0.05)
        installing.kill()
        installing.wait()
        try:
            with pytest.raises(Refused, match="another install is at work"):
                install_cpu(home, python=base)
        finally:
            (tmp_path / "go").touch()


def test_a_version_without_a_lock(home: Paths):
    with pytest.raises(UsageError) as caught:
        install_cpu(home, sglang="0.5.9")
    assert str(caught.value) == "no list of packages for SGLang 0.5.9. Supported versions: 0.5.22, 0.5.23"
    assert not home.engines_dir.exists()


def test_no_engine_at_all(home: Paths):
    [result] = engines.check(home)
    assert (result.status, result.remedy) == (CheckStatus.WARN, "Run `specctl engine install --cpu`")


def test_pip_settings_of_the_caller_do_not_lead_astray(home, base, monkeypatch, tmp_path):
    seen = tmp_path / "seen"
    Path(base).write_text(f"#!/bin/sh\nenv > {seen}\nexit 3\n")
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_USER"):
        monkeypatch.setenv(name, "/elsewhere")
    with pytest.raises(SpecctlError, match=r"step 1 \(environment\): exit 3"):
        install_cpu(home, python=base)
    assert "/elsewhere" not in seen.read_text()
    assert os.environ["PIP_TARGET"] == "/elsewhere"
