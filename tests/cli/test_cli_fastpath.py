import inspect
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from specctl.cli import app, fastpath
from specctl.cli.commands import mode as mode_module
from specctl.cli.commands import status as status_module
from specctl.core.errors import UsageError

_OPTIONS = "--json --wait --timeout --reason --socket --watch --help -- -x --json=1 --timeout=5 --reason=x"
_VALUES = "5 0.25 0 1e3 nan -1 chain off /tmp/x ١"
WORDS = st.sampled_from([*_OPTIONS.split(), *_VALUES.split(), "a b", ""])


def by_typer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]] | None:
    """What typer calls for `words`, or None where it calls nothing."""
    calls: list[tuple[str, dict[str, Any]]] = []
    with monkeypatch.context() as patched:
        for module, name in ((status_module, "status"), (mode_module, "mode")):
            patched.setattr(module, name, lambda _name=name, **given: calls.append((_name, given)) or 0)
        try:
            app.run(words)
        except UsageError:
            return None
    return calls[0] if calls else None


def filled(name: str, given_: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(fastpath.command(name)).parameters
    return {key: parameter.default for key, parameter in parameters.items()} | given_


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(command=st.sampled_from(["status", "mode"]), rest=st.lists(WORDS, max_size=6))
@example(command="mode", rest=["chain", "--wait", "--json", "--timeout", "2.5", "--reason", "a b", "--socket", "/x"])
@example(command="status", rest=["--json", "--socket", "/x"])
@example(command="mode", rest=[])
def test_both_readers_agree(monkeypatch: pytest.MonkeyPatch, command: str, rest: list[str]) -> None:
    plain = fastpath.read([command, *rest])
    if plain is not None:
        typed = by_typer([command, *rest], monkeypatch)
        assert typed is not None
        assert (plain[0], filled(*plain)) == (typed[0], filled(*typed))


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", "--json"],
        ["mode"],
        ["mode", "off"],
        ["mode", "off", "--wait", "--json", "--timeout", "3"],
    ],
)
def test_the_usual_spellings_are_read_without_typer(words: list[str]) -> None:
    assert fastpath.read(words) is not None


@pytest.mark.parametrize(
    "words", [[], ["up"], ["status", "--watch"], ["mode", "--help"], ["mode", "a", "b"], ["mode", "--reason"]]
)
def test_the_rest_is_typers(words: list[str]) -> None:
    assert fastpath.read(words) is None


def test_completion_is_typers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_SPECCTL_COMPLETE", "complete_bash")
    assert fastpath.read(["status"]) is None
