import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from specctl.config.paths import MAX_SOCKET_BYTES, ensure_runtime_dir, paths
from specctl.core.errors import Refused, UsageError


def test_home_puts_everything_under_one_folder():
    found = paths({"SPECCTL_HOME": "/srv/specctl", "XDG_CONFIG_HOME": "/elsewhere"})
    assert found.profiles_dir == Path("/srv/specctl/config/profiles")
    assert found.engines_dir == Path("/srv/specctl/data/engines")
    assert found.run_dir(7) == Path("/srv/specctl/state/runs/7")
    assert found.daemon_log == Path("/srv/specctl/state/daemon.log")
    assert found.socket == Path("/srv/specctl/run/specctld.sock")
    assert found.lock == Path("/srv/specctl/run/specctld.lock")


def test_xdg_folders():
    env = {
        "HOME": "/home/op",
        "XDG_CONFIG_HOME": "/c",
        "XDG_DATA_HOME": "/d",
        "XDG_STATE_HOME": "/s",
        "XDG_RUNTIME_DIR": "/run/user/7",
    }
    found = paths(env)
    assert (found.config_dir, found.data_dir, found.state_dir, found.runtime_dir) == tuple(
        Path(base) / "specctl" for base in ("/c", "/d", "/s", "/run/user/7")
    )


def test_without_xdg_the_home_and_a_folder_of_this_user():
    found = paths({"HOME": "/home/op", "XDG_DATA_HOME": "relative/is/ignored"})
    assert found.config_dir == Path("/home/op/.config/specctl")
    assert found.data_dir == Path("/home/op/.local/share/specctl")
    assert found.state_dir == Path("/home/op/.local/state/specctl")
    assert found.socket == Path(f"/tmp/specctl-{os.getuid()}/specctld.sock")


def test_a_named_socket_brings_its_folder_and_lock():
    found = paths({"SPECCTL_HOME": "/srv/s", "SPECCTL_SOCKET": "/run/other/b.sock"})
    assert (found.runtime_dir, found.lock) == (Path("/run/other"), Path("/run/other/b.lock"))
    assert found.data_dir == Path("/srv/s/data")


def test_a_tilde_means_the_home_of_the_given_environment():
    assert paths({"HOME": "/home/op", "SPECCTL_HOME": "~/spec"}).data_dir == Path("/home/op/spec/data")


@pytest.mark.parametrize(("extra", "fits"), [(0, True), (1, False)])
def test_socket_path_limit(extra: int, fits: bool):
    socket = "/" + "x" * (MAX_SOCKET_BYTES - 1 + extra)
    if fits:
        assert str(paths({"SPECCTL_SOCKET": socket}).socket) == socket
        return
    with pytest.raises(UsageError) as caught:
        paths({"SPECCTL_SOCKET": socket})
    assert f"{MAX_SOCKET_BYTES + 1} bytes, at most {MAX_SOCKET_BYTES}" in caught.value.message
    assert "SPECCTL_SOCKET" in (caught.value.remedy or "")


def test_socket_limit_counts_bytes_not_letters():
    with pytest.raises(UsageError):
        paths({"SPECCTL_SOCKET": "/" + "ä" * 60})


def test_runtime_folder_is_private_whatever_the_umask(tmp_path: Path):
    where = paths({"SPECCTL_HOME": str(tmp_path / "h")})
    before = os.umask(0)
    try:
        ensure_runtime_dir(where)
        ensure_runtime_dir(where)
    finally:
        os.umask(before)
    assert stat.S_IMODE(where.runtime_dir.stat().st_mode) == 0o700


def test_runtime_folder_open_to_others_is_refused(tmp_path: Path):
    where = paths({"SPECCTL_HOME": str(tmp_path)})
    where.runtime_dir.mkdir(mode=0o700)
    where.runtime_dir.chmod(0o750)
    with pytest.raises(Refused, match=r"open to other users \(mode 0750\)"):
        ensure_runtime_dir(where)


def test_runtime_folder_that_is_a_link_is_refused(tmp_path: Path):
    where = paths({"SPECCTL_HOME": str(tmp_path)})
    (tmp_path / "real").mkdir(mode=0o700)
    where.runtime_dir.symlink_to(tmp_path / "real")
    with pytest.raises(Refused, match="is a link or belongs to another user"):
        ensure_runtime_dir(where)


def test_runtime_folder_where_a_file_is(tmp_path: Path):
    where = paths({"SPECCTL_HOME": str(tmp_path)})
    where.runtime_dir.write_text("")
    with pytest.raises(Refused, match="cannot be made"):
        ensure_runtime_dir(where)


def test_paths_do_not_load_the_profile_machinery():
    code = "import sys, specctl.config.paths as p; p.paths(); print({'pydantic', 'tomllib'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
