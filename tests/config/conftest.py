from pathlib import Path

import pytest

from specctl.config.paths import Paths, paths


@pytest.fixture
def home(tmp_path: Path) -> Paths:
    """Folders of their own for one test, with a profiles folder."""
    found = paths({"SPECCTL_HOME": str(tmp_path / "h")})
    found.profiles_dir.mkdir(parents=True)
    return found
