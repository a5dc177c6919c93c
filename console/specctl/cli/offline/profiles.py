"""`specctl profiles list|show|validate|schema`."""

from __future__ import annotations

from specctl.cli.connect import locate
from specctl.cli.output import clean, data, data_json
from specctl.config.load import find_profile, list_profiles, load_profile
from specctl.core.errors import InvalidProfile
from specctl.core.exitcodes import ExitCode


def list_all(*, json: bool) -> int:
    """Every profile that has a name; one that cannot be loaded is listed with the reason."""
    entries = list_profiles(locate(None))
    if json:
        data_json([{**_fields(entry), "path": str(entry.path)} for entry in entries])
        return int(ExitCode.OK)
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        about = f"INVALID: {entry.problem}" if entry.problem else entry.description
        data(f"{clean(entry.name):<{width}}  {entry.source:<8}{clean(about)}".rstrip())
    return int(ExitCode.OK)


def show(*, profile: str, json: bool) -> int:
    """The profile's file as it is; with `json` every value it leads to, defaults included."""
    where = locate(None)
    if json:
        data_json(load_profile(profile, {}, where).model_dump(mode="json"))
        return int(ExitCode.OK)
    path = find_profile(profile, where)
    try:
        data(path.read_text(encoding="utf-8").rstrip("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidProfile(f"{path}: cannot be read: {error}") from error
    return int(ExitCode.OK)


def validate(*, profiles: list[str], json: bool) -> int:
    """Load each profile. The first that is not valid is the error, after all were told."""
    where = locate(None)
    problems: dict[str, InvalidProfile | None] = {}
    for profile in profiles:
        try:
            load_profile(profile, {}, where)
            problems[profile] = None
        except InvalidProfile as error:
            problems[profile] = error
    if json:
        data_json({name: None if problem is None else problem.body() for name, problem in problems.items()})
    else:
        for name, problem in problems.items():
            if problem is None:
                data(f"{clean(name)}: valid")
    invalid = [problem for problem in problems.values() if problem is not None]
    if len(invalid) > 1:
        first = invalid[0]
        raise InvalidProfile(f"{first.message} (and {len(invalid) - 1} more invalid profiles)", remedy=first.remedy)
    if invalid:
        raise invalid[0]
    return int(ExitCode.OK)


def schema() -> int:
    """The JSON schema of a profile."""
    from specctl.config.schema import schema_text

    data(schema_text().rstrip("\n"))
    return int(ExitCode.OK)


def _fields(entry: object) -> dict[str, object]:
    return {name: getattr(entry, name) for name in ("name", "source", "description", "problem")}
