import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specctl.config.fields import field_schema, known_keys, nearest_key
from specctl.config.load import find_profile, list_profiles, load_profile
from specctl.config.paths import Paths
from specctl.config.profile import Profile
from specctl.config.schema import profile_schema, schema_text
from specctl.core.errors import InvalidProfile
from specctl.core.modes import DEFAULT_MODES, TREE, Mode

MINIMAL = """
[engine]
kind = "cpu"
[model]
target = "demo"
draft = "demo"
[server]
max_running_requests = 8
"""
ROOT = Path(__file__).parents[2]


def write(home: Paths, text: str, name: str = "mine") -> Path:
    path = home.profiles_dir / f"{name}.toml"
    path.write_text(text)
    return path


def refusal(home: Paths, text: str, **overrides: str) -> InvalidProfile:
    write(home, text)
    with pytest.raises(InvalidProfile) as caught:
        load_profile("mine", {key.replace("__", "."): value for key, value in overrides.items()}, home)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_minimal_profile_has_the_defaults_of_the_design(home: Paths):
    write(home, MINIMAL)
    profile = load_profile("mine", {}, home)
    assert profile.name == "mine"
    assert profile.mode_list == DEFAULT_MODES
    assert profile.boot_mode == TREE
    assert (profile.server.host, profile.server.port, profile.server.page_size) == ("127.0.0.1", 0, 1)


def test_modes_of_the_profile_and_their_boot_mode(home: Paths):
    modes = '\n[[modes]]\nname = "off"\nnum_steps = 0\nnum_draft_tokens = 1\n'
    modes += '[[modes]]\nname = "chain"\nnum_steps = 3\nnum_draft_tokens = 4\n'
    write(home, MINIMAL + modes)
    profile = load_profile("mine", {}, home)
    assert profile.mode_list == (Mode("off", 0, 1, 1), Mode("chain", 3, 1, 4))
    assert profile.boot_mode.name == "chain"


BAD = {
    "typo": (
        MINIMAL.replace("max_running_requests", "max_runing_requests"),
        "{file}: server.max_runing_requests: unknown key; did you mean max_running_requests? (and 1 more)",
    ),
    "key in the wrong table": (
        MINIMAL.replace("[engine]", "[engine]\nmax_restarts = 1"),
        "{file}: engine.max_restarts: unknown key; did you mean supervision.max_restarts?",
    ),
    "unknown key like no other": (MINIMAL + "zzz = 1\n", "{file}: server.zzz: unknown key"),
    "unknown table": (MINIMAL + "[servers]\n", "{file}: servers: unknown key; did you mean server?"),
    "missing key": (
        MINIMAL.replace("max_running_requests = 8", ""),
        "{file}: server.max_running_requests: missing; it must be an integer, at least 1",
    ),
    "missing table": (MINIMAL.replace('[engine]\nkind = "cpu"', ""), "{file}: engine: missing; it must be a table"),
    "text for a number": (
        MINIMAL + 'port = "80"\n',
        "{file}: server.port: '80' is not valid; expected an integer from 0 to 65535",
    ),
    "number too large": (
        MINIMAL + "port = 70000\n",
        "{file}: server.port: 70000 is not valid; expected an integer from 0 to 65535",
    ),
    "truth for a number": (
        MINIMAL + "tp = true\n",
        "{file}: server.tp: true is not valid; expected an integer, at least 1",
    ),
    "number for text": (MINIMAL + "host = 5\n", "{file}: server.host: 5 is not valid; expected text, not empty"),
    "relative path": (
        MINIMAL.replace('target = "demo"', 'target = "models/t"'),
        "{file}: model.target: 'models/t' is a relative path; write the whole one",
    ),
    "share above one": (
        MINIMAL + "mem_fraction_static = 75\n",
        "{file}: server.mem_fraction_static: 75 is not valid; expected a number between 0 and 1",
    ),
    "not a number at all": (
        MINIMAL + "[supervision]\ndrain_s = nan\n",
        "{file}: supervision.drain_s: nan is not valid; expected a number, at least 0",
    ),
    "choice": (
        MINIMAL.replace('"cpu"', '"gpu"'),
        '{file}: engine.kind: \'gpu\' is not valid; expected "cpu" or "cuda"',
    ),
    "list of numbers": (
        MINIMAL + "extra_args = [1]\n",
        "{file}: server.extra_args[0]: 1 is not valid; expected text",
    ),
    "number in the environment": (
        MINIMAL + "env = { A = 1 }\n",
        "{file}: server.env.A: 1 is not valid; expected text",
    ),
    "a key where its variable's name belongs": (
        MINIMAL + 'api_key_env = "sk-123"\n',
        "{file}: server.api_key_env: 'sk-123' is not valid; expected text that matches ^([A-Za-z_][A-Za-z0-9_]*)?$",
    ),
    "impossible mode": (
        MINIMAL + '[[modes]]\nname = "tree"\nnum_steps = 2\ntopk = 4\nnum_draft_tokens = 99\n',
        "{file}: modes: mode tree: num_draft_tokens 99 must be between 2 and 21, "
        "the most that 2 steps of topk 4 can draft",
    ),
    "modes that fit no server": (
        MINIMAL
        + '[[modes]]\nname = "tree"\nnum_steps = 2\ntopk = 4\nnum_draft_tokens = 16\n'
        + '[[modes]]\nname = "deep"\nnum_steps = 5\nnum_draft_tokens = 6\n',
        "{file}: modes: mode deep: num_steps 5 is above 2 of the boot mode tree",
    ),
    "only off": (
        MINIMAL + '[[modes]]\nname = "off"\nnum_steps = 0\nnum_draft_tokens = 1\n',
        "{file}: modes: at least one mode must speculate (num_steps above 0)",
    ),
    "mode without its width": (
        MINIMAL + '[[modes]]\nname = "chain"\nnum_steps = 2\n',
        "{file}: modes[0].num_draft_tokens: missing; it must be an integer, at least 1",
    ),
    "bad TOML": (
        MINIMAL + "port 80\n",
        "{file}: not valid TOML: Expected '=' after a key in a key/value pair (at line 9, column 6)",
    ),
    "unfinished TOML": (
        MINIMAL + "port = ",
        "{file}: not valid TOML: Invalid value (at line 9, column 8, the end of the file)",
    ),
    "key given twice": (
        MINIMAL + "max_running_requests = 9\n",
        "{file}: not valid TOML: Cannot overwrite a value (at line 9, column 25)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_profiles_say_what_is_wrong_on_one_line(case: str, home: Paths):
    text, wanted = BAD[case]
    assert str(refusal(home, text)) == wanted.format(file=home.profiles_dir / "mine.toml")


def test_a_file_that_is_not_text(home: Paths):
    (home.profiles_dir / "mine.toml").write_bytes(b"[engine]\nkind = '\xff'\n")
    with pytest.raises(InvalidProfile, match=r"mine\.toml: not valid TOML: line 2 is not UTF-8"):
        load_profile("mine", {}, home)


# --- by name and by path -----------------------------------------------------------------------------------------


def test_the_users_profile_hides_a_shipped_one(home: Paths):
    assert load_profile("demo-cpu", {}, home).profile.description == "Demo model on the CPU engine"
    write(home, '[profile]\ndescription = "mine"\n' + MINIMAL, "demo-cpu")
    assert load_profile("demo-cpu", {}, home).profile.description == "mine"
    entry = next(e for e in list_profiles(home) if e.name == "demo-cpu")
    assert (entry.source, entry.description) == ("user", "mine")


def test_by_path(home: Paths, tmp_path: Path):
    path = tmp_path / "other.toml"
    path.write_text(MINIMAL)
    assert load_profile(str(path), {}, home).name == "other"


def test_unknown_name_names_the_nearest_and_all(home: Paths):
    write(home, MINIMAL)
    with pytest.raises(InvalidProfile) as caught:
        load_profile("demo-cpus", {}, home)
    assert caught.value.message == (
        "no profile is called 'demo-cpus'; did you mean demo-cpu? (known: demo-cpu, eagle3-tree, mine, template)"
    )


@pytest.mark.parametrize("path", ["./nope", "/nope/x.toml", "nope.toml", "../demo-cpu"])
def test_a_path_that_does_not_exist(path: str, home: Paths):
    with pytest.raises(InvalidProfile, match="does not exist"):
        load_profile(path, {}, home)


def test_a_folder_is_told_from_a_missing_file(home: Paths, tmp_path: Path):
    with pytest.raises(InvalidProfile, match="is a folder") as caught:
        load_profile(f"{tmp_path}/", {}, home)
    assert caught.value.remedy == "Name the TOML file in it"


def test_listing_shows_a_broken_profile_with_its_problem(home: Paths):
    write(home, "port 80", "broken")
    entries = {entry.name: entry for entry in list_profiles(home)}
    assert "not valid TOML" in (entries["broken"].problem or "")
    assert [e.name for e in entries.values() if e.problem] == ["broken"], "every shipped profile loads"


def test_the_template_names_every_key(home: Paths):
    text = find_profile("template", home).read_text()
    for table in known_keys(()):
        schema = field_schema((table,))
        assert schema is not None
        inner = schema["items"] if schema.get("type") == "array" else {}
        keys = known_keys((table, 0)) if inner else known_keys((table,))
        section = text[text.index(f"[{table}]") :]
        section = section[: section.find("\n[", 1)] if "\n[" in section else section
        for key in keys:
            assert f"\n{key} = " in section or f"\n# {key} = " in section, f"{table}.{key}"


def test_the_templates_commented_lines_are_valid_and_the_defaults_are_true(home: Paths):
    """Uncommenting every line gives a valid profile, equal to the plain one but for the examples."""
    lines = find_profile("template", home).read_text().splitlines()
    full = [line[2:] if line.startswith(("# [[", "# ")) and _is_setting(line[2:]) else line for line in lines]
    path = write(home, "\n".join(full), "full")
    plain, opened = load_profile("template", {}, home), load_profile(str(path), {}, home)
    examples = {"max_total_tokens", "mem_fraction_static", "context_length", "cuda_graph_max_bs", "overlap_schedule"}
    assert opened.model_copy(update={"profile": plain.profile, "server": plain.server}) == plain
    differing = {k for k, v in opened.server.model_dump().items() if v != plain.server.model_dump()[k]}
    assert differing == examples


def _is_setting(text: str) -> bool:
    return text.startswith("[[") or (" = " in text and text.split(" = ")[0].isidentifier())


# --- overrides ---------------------------------------------------------------------------------------------------


def test_overrides_replace_values_of_every_type(home: Paths):
    write(home, MINIMAL)
    overrides = {
        "server.port": "31000",
        "server.mem_fraction_static": "0.5",
        "server.overlap_schedule": "true",
        "server.extra_args": '["--log-requests"]',
        "server.env.A": "1",
        "model.served_name": "123",
        "model.target": "/models/a b",
        "model.draft": '"/quoted"',
        "modes": '[{name="chain", num_steps=1, num_draft_tokens=2}]',
        "logs.max_mb": "5",
    }
    profile = load_profile("mine", overrides, home)
    server = profile.server
    assert (server.port, server.mem_fraction_static, server.overlap_schedule) == (31000, 0.5, True)
    assert (server.extra_args, server.env) == (("--log-requests",), {"A": "1"})
    assert (profile.model.served_name, profile.model.target, profile.model.draft) == ("123", "/models/a b", "/quoted")
    assert profile.mode_list == (Mode("chain", 1, 1, 2),)
    assert profile.logs.max_mb == 5


BAD_OVERRIDES = {
    ("server.prt", "3"): "--set server.prt=3: server.prt: unknown key; did you mean port?",
    ("server.port", "abc"): "--set server.port=abc: server.port: 'abc' is not valid; "
    "expected an integer from 0 to 65535",
    ("server.port", "1\ntp=2"): "--set server.port='1\\ntp=2': server.port: '1\\ntp=2' is not valid; "
    "expected an integer from 0 to 65535",
    ("server", "3"): "--set server=3: server: 3 is not valid; expected a table",
    ("server.max_running_requests.x", "3"): "--set server.max_running_requests.x=3: "
    "server.max_running_requests is not a table",
    ("modes", "[]"): "--set modes=[]: modes: [] is not valid; expected a list, not empty",
    ("modes", '[{name="T", num_steps=1, num_draft_tokens=2}]'): '--set modes=[{name="T", num_steps=1, '
    "num_draft_tokens=2}]: modes: mode name 'T' must be lower-case letters, digits, - or _, at most 24",
    ("server.", "3"): "--set server.=3: 'server.' is not a key. Write --set table.key=value",
}


@pytest.mark.parametrize(("key", "value"), BAD_OVERRIDES)
def test_bad_overrides_name_themselves(key: str, value: str, home: Paths):
    assert str(refusal(home, MINIMAL, **{key: value})) == BAD_OVERRIDES[key, value]


def test_a_problem_of_the_file_is_not_blamed_on_an_override(home: Paths):
    assert "mine.toml: server.tp: 0" in str(refusal(home, MINIMAL + "tp = 0\n", server__port="3"))


TABLES = ("engine", "model", "server", "supervision", "logs")
INTEGERS = ["port", "max_running_requests", "page_size", "tp", "dp", "decode_log_interval"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(INTEGERS), value=st.integers(1, 65535))
def test_an_override_equals_the_same_line_in_the_file(home: Paths, key: str, value: int):
    lines = [line for line in MINIMAL.splitlines() if not line.startswith(f"{key} ")]
    write(home, "\n".join([*lines, f"{key} = {value}"]), "line")
    write(home, MINIMAL, "line2")
    in_file = load_profile("line", {"profile.name": "x"}, home)
    assert load_profile("line2", {f"server.{key}": str(value), "profile.name": "x"}, home) == in_file


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40))
def test_any_text_reaches_a_text_field_or_is_refused_on_one_line(home: Paths, text: str):
    write(home, MINIMAL)
    try:
        profile = load_profile("mine", {"model.served_name": text}, home)
    except InvalidProfile as error:
        assert str(error).isprintable()
    else:
        assert profile.model.served_name == text or text.strip().startswith(("'", '"'))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=1, max_size=12),
    value=st.text(max_size=20),
)
def test_an_unknown_key_is_always_refused_with_its_name(home: Paths, key: str, value: str):
    if key in known_keys(("server",)):
        return
    error = refusal(home, MINIMAL, **{f"server.{key}": value})
    assert f"server.{key}: unknown key" in str(error)


@given(
    st.sampled_from([(t, k) for t in ("engine", "model", "server", "supervision", "logs") for k in known_keys((t,))])
)
def test_a_missing_letter_leads_to_the_right_key(location: tuple[str, str]):
    table, key = location
    if len(key) < 5:
        return
    assert nearest_key((table, key[:2] + key[3:])) == key


# --- schema ------------------------------------------------------------------------------------------------------


def test_the_committed_schema_is_the_models():
    assert (ROOT / "docs" / "profile.schema.json").read_text() == schema_text(), (
        "run: python -m specctl.config.schema > docs/profile.schema.json"
    )


def test_every_key_is_documented():
    def walk(node: Any, path: str) -> None:
        for key, value in node.get("properties", {}).items():
            assert value.get("description") or "$ref" in value, f"{path}.{key} has no field doc"

    schema = profile_schema()
    for name, table in schema["$defs"].items():
        walk(table, name)
    json.dumps(schema)


def test_profiles_are_frozen(home: Paths):
    write(home, MINIMAL)
    profile = load_profile("mine", {}, home)
    with pytest.raises(ValueError, match="frozen"):
        profile.server.port = 1  # type: ignore[misc]
    assert isinstance(profile, Profile)
