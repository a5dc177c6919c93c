"""The overlay folder: the engine patch as an importable package with its plugin entry point.

Put on PYTHONPATH, it makes any SGLang load the patch; nothing is installed into SGLang's own environment.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from specctl import __version__

PACKAGE = "specctl_engine"
ENTRY_POINTS = "[sglang.srt.plugins]\nspecctl = specctl_engine:activate\n"
_METADATA = "Metadata-Version: 2.1\nName: specctl-engine\nVersion: {version}\nSummary: specctl's patch for SGLang\n"


def source_folder() -> Path:
    """Where the patch's sources are, in a checkout or in an installed wheel. It is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {PACKAGE} is not part of this installation")
    return Path(spec.submodule_search_locations[0])


def cpu_site(folder: Path) -> Path:
    """The folder inside the overlay that stands in for packages which a CPU engine lacks."""
    return folder / PACKAGE / "cpu" / "site"


def write(folder: Path) -> None:
    """Fill `folder` (made anew) with the patch and its metadata. Raises OSError."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    shutil.copytree(source_folder(), folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    info = folder / f"{PACKAGE}-{__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(_METADATA.format(version=__version__))
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
