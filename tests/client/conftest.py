import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.contract_daemon import ContractDaemon


@pytest.fixture
def socket() -> Iterator[Path]:
    """A short path: the kernel allows 107 bytes, and pytest's own folders are long."""
    with tempfile.TemporaryDirectory(prefix="specctl-") as folder:
        yield Path(folder) / "d.sock"


@pytest.fixture
def daemon(socket: Path) -> Iterator[ContractDaemon]:
    with ContractDaemon(socket) as running:
        yield running
