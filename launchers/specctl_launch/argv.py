"""The arguments of sglang.launch_server, and which profile key owns each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from specctl.config.profile import Profile
from specctl_launch.models import model_folder

OWNED: dict[str, str] = {
    "--host": "server.host",
    "--port": "server.port",
    "--model-path": "model.target",
    "--served-model-name": "model.served_name",
    "--dtype": "model.dtype",
    "--device": "engine.kind",
    "--tp-size": "server.tp",
    "--tensor-parallel-size": "server.tp",
    "--dp-size": "server.dp",
    "--data-parallel-size": "server.dp",
    "--attention-backend": "server.attention_backend",
    "--page-size": "server.page_size",
    "--max-running-requests": "server.max_running_requests",
    "--max-total-tokens": "server.max_total_tokens",
    "--mem-fraction-static": "server.mem_fraction_static",
    "--context-length": "server.context_length",
    "--cuda-graph-max-bs-decode": "server.cuda_graph_max_bs",
    "--decode-log-interval": "server.decode_log_interval",
    "--disable-overlap-schedule": "server.overlap_schedule",
    "--speculative-algorithm": "model.algorithm",
    "--speculative-draft-model-path": "model.draft",
    "--speculative-num-steps": "modes",
    "--speculative-eagle-topk": "modes",
    "--speculative-num-draft-tokens": "modes",
    "--api-key": "server.api_key_env",
    "--admin-api-key": "server.admin_api_key_env",
    "--config": "server",
    "--uvicorn-access-log-exclude-prefixes": "server",
}
"""SGLang's flag -> the profile key that sets it. In `extra_args` these are refused."""

ALWAYS = ("--enable-metrics", "--sleep-on-idle", "--disable-cuda-graph")
"""Flags without a key that the plan may set; repeating them in `extra_args` changes nothing."""

POLLED = ("/metrics", "/ready", "/server_info", "/v1/loads", "/model_info")
"""Pages of the engine that the daemon reads again and again."""

DEFAULT_BACKEND = {"cpu": "intel_amx", "cuda": "flashinfer"}


def attention_backend(profile: Profile) -> str:
    return profile.server.attention_backend or DEFAULT_BACKEND[profile.engine.kind]


def served_name(profile: Profile) -> str:
    return profile.model.served_name or model_folder(profile.model.target, "target").name


def server_argv(profile: Profile, *, python: Path, port: int, secrets_file: Path | None) -> tuple[str, ...]:
    """The whole command line. Secrets are not in it: other users can read a process's arguments."""
    server, model, boot = profile.server, profile.model, profile.boot_mode
    options: list[tuple[str, object]] = [
        ("--host", server.host),
        ("--port", port),
        ("--model-path", model_folder(model.target, "target")),
        ("--served-model-name", served_name(profile)),
        ("--device", profile.engine.kind),
        ("--dtype", "float32" if profile.engine.kind == "cpu" and model.dtype == "auto" else model.dtype),
        ("--tp-size", server.tp),
        ("--dp-size", server.dp),
        ("--attention-backend", attention_backend(profile)),
        ("--page-size", server.page_size),
        ("--max-running-requests", server.max_running_requests),
        ("--max-total-tokens", server.max_total_tokens),
        ("--mem-fraction-static", server.mem_fraction_static),
        ("--context-length", server.context_length),
        ("--decode-log-interval", server.decode_log_interval),
        ("--speculative-algorithm", model.algorithm),
        ("--speculative-draft-model-path", model_folder(model.draft, "draft")),
        ("--speculative-num-steps", boot.num_steps),
        ("--speculative-eagle-topk", boot.topk),
        ("--speculative-num-draft-tokens", boot.num_draft_tokens),
    ]
    flags = ["--enable-metrics"]
    if profile.engine.kind == "cpu":
        # Without --sleep-on-idle an idle scheduler burns a whole core.
        flags += ["--disable-cuda-graph", "--sleep-on-idle"]
    else:
        options.append(("--cuda-graph-max-bs-decode", graph_max_bs(profile)))
    if server.overlap_schedule is False:
        flags.append("--disable-overlap-schedule")
    options.append(("--config", secrets_file))
    # The daemon's own polls would fill the log that operators read; commands stay in it.
    flags += ["--uvicorn-access-log-exclude-prefixes", *POLLED]
    command = [str(python), "-m", "sglang.launch_server"]
    for flag, value in options:
        if value is not None:
            command += [flag, str(value)]
    return (*command, *flags, *server.extra_args)


def graph_max_bs(profile: Profile) -> int:
    return profile.server.cuda_graph_max_bs or profile.server.max_running_requests


def flags_of(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(flag, value) of each argument that starts with two dashes; the value is "" where none follows."""
    for place, token in enumerate(arguments):
        if token.startswith("--"):
            flag, equals, value = token.partition("=")
            following = arguments[place + 1] if place + 1 < len(arguments) else ""
            yield flag, value if equals else "" if following.startswith("--") else following


def means(token: str, flag: str) -> bool:
    """Whether `token` is `flag` or an abbreviation of it: argparse takes any unambiguous beginning."""
    return token == flag or (len(token) >= len("--tp") and flag.startswith(token))
