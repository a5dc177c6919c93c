"""The one worker of this scheduler process, for hooks whose target knows no worker."""

from __future__ import annotations

from typing import Any

worker: Any = None
