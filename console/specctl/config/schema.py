"""The profile's JSON schema, for editors and `specctl profiles schema`; `python -m specctl.config.schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from specctl.config.profile import Profile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def profile_schema() -> dict[str, Any]:
    return {"$schema": DIALECT, **Profile.model_json_schema()}


def schema_text() -> str:
    """The schema as it is committed in docs/profile.schema.json."""
    return json.dumps(profile_schema(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
