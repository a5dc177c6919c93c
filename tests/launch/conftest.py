import json
from collections.abc import Callable
from pathlib import Path

import pytest
from launch_models import DRAFT, TARGET

from specctl.config.load import load_profile
from specctl.config.paths import Paths, paths
from specctl_launch.plan import LaunchPlan, make_plan


@pytest.fixture
def home(tmp_path: Path) -> Paths:
    return paths({"SPECCTL_HOME": str(tmp_path / "h")})


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with config.json files of a target and a draft that fit each other."""
    for name, config in (("target", TARGET), ("draft", DRAFT)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return tmp_path


Planner = Callable[..., LaunchPlan]


@pytest.fixture
def planner(home: Paths, models: Path, tmp_path: Path) -> Planner:
    """Makes plans of a minimal profile with these models; keywords are overrides, `__` stands for a dot."""
    profile = tmp_path / "p.toml"
    text = f'[engine]\nkind = "cpu"\n[model]\ntarget = "{models}/target"\ndraft = "{models}/draft"\n'
    profile.write_text(text + "[server]\nmax_running_requests = 8\n")

    def plan(*, inherited: dict[str, str] | None = None, **overrides: str) -> LaunchPlan:
        given = {key.replace("__", "."): value for key, value in overrides.items()}
        return make_plan(
            load_profile(str(profile), given, home), home, run_dir=home.run_dir(1), inherited=inherited or {}
        )

    return plan
