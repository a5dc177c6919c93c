"""The profile: one TOML file that says which engine, model, modes and server an operator wants.

These models are the schema. Their field docs are shown by `specctl profiles schema`. Values are strict: text is not
turned into numbers, an unknown key is an error. Loading, overrides and error messages: `specctl.config.load`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from specctl.core.modes import DEFAULT_MODES, Mode, boot_mode, modes_problem

DEMO = "demo"
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
EnvName = Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")]


def _whole_path(path: str) -> str:
    """A path means the same wherever it is read: the daemon has another working folder than the operator."""
    if path and path != DEMO and not path.startswith(("/", "~")):
        raise ValueError(f"{path!r} is a relative path; write the whole one")
    return path


WholePath = Annotated[str, AfterValidator(_whole_path)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class About(_Table):
    """What the profile is called."""

    name: str = ""
    """Name shown to operators. Empty: the file's name."""
    description: str = ""
    """One line for `specctl profiles list`."""


class Engine(_Table):
    """Which SGLang runs the server."""

    kind: Literal["cpu", "cuda"]
    """What it computes on."""
    python: WholePath = ""
    """Python interpreter that has SGLang. Empty: the environment made by `specctl engine install` (CPU only)."""
    sglang: str = Field(default="0.5.23", pattern=r"^\d+\.\d+\.\d+(\.post\d+)?$")
    """SGLang version that must be found there."""


class Model(_Table):
    """What is served, and what drafts for it."""

    target: WholePath = Field(min_length=1)
    """Folder of the target model, or "demo" for the model that is shipped with specctl."""
    draft: WholePath = Field(min_length=1)
    """Folder of the EAGLE-3 draft model, or "demo"."""
    algorithm: Literal["EAGLE3"] = "EAGLE3"
    """Speculative algorithm."""
    served_name: str = ""
    """Model name at the API. Empty: the name of the target's folder."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Weights' data type. auto: float32 on cpu, the model's own on cuda."""


class ModeTable(_Table):
    """One speculation mode that the running server can be flipped to."""

    name: str
    """Lower-case name: tree, chain and off are the usual ones."""
    num_steps: int = Field(ge=0)
    """Draft steps a round; 0 = no speculation."""
    topk: int = Field(default=1, ge=1)
    """Branches a step; 1 = a chain."""
    num_draft_tokens: int = Field(ge=1)
    """Nodes of the verify forward, the root included; 1 when num_steps is 0, num_steps + 1 for a chain."""

    def to_mode(self) -> Mode:
        return Mode(self.name, self.num_steps, self.topk, self.num_draft_tokens)


class Server(_Table):
    """How SGLang is launched. What is not set here is left to SGLang."""

    max_running_requests: Count
    """Most requests that decode at once. Required: SGLang sets 48 on its own when speculation is on."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on."""
    port: Port = 0
    """Port to listen on; 0 = a free one, chosen at launch."""
    max_total_tokens: Count | None = None
    """Token slots of the KV cache. Unset: what mem_fraction_static leaves room for."""
    mem_fraction_static: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of memory for weights and KV cache. Draft states and graphs need room beside it."""
    page_size: Count = 1
    """Token slots of a KV page. Above 1 a tree reserves a page per branch."""
    attention_backend: str = ""
    """flashinfer, fa3 or triton. Empty: flashinfer on cuda, intel_amx on cpu."""
    context_length: Count | None = None
    """Longest context in tokens. Unset: the target's own."""
    decode_log_interval: Count = 10
    """Decode rounds between two log lines and updates of the gauges."""
    cuda_graph_max_bs: Count | None = None
    """Largest batch with a CUDA graph. Unset: max_running_requests, so that no batch runs without one."""
    tp: Count = 1
    """Tensor-parallel ranks."""
    dp: Count = 1
    """Data-parallel replicas."""
    overlap_schedule: bool | None = None
    """Overlap scheduler. Unset: SGLang's choice, on for cuda and off for cpu."""
    api_key_env: EnvName = ""
    """NAME of the environment variable that holds the API key. The key itself never stands in a profile."""
    admin_api_key_env: EnvName = ""
    """NAME of the environment variable that holds the admin key, which flips need when it is set."""
    extra_args: Texts = ()
    """Further arguments of sglang.launch_server. Those that specctl sets itself are refused."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further environment variables. PYTHONPATH is appended to specctl's own folders."""


class Supervision(_Table):
    """What the daemon does when the server starts, ends or hangs. Times in seconds."""

    restart: Literal["on-failure", "never", "always"] = "on-failure"
    """When an ended server is started again."""
    max_restarts: int = Field(default=3, ge=0)
    """Restarts in a row before the server counts as FAILED."""
    ready_timeout_s: Seconds = 900.0
    """How long a start may take until READY."""
    drain_s: Seconds = 30.0
    """How long running requests may take when the server is stopped; 0 = do not wait."""
    stop_timeout_s: Seconds = 30.0
    """How long the processes may take to end after SIGTERM before SIGKILL."""
    wedged_after_s: Seconds = 20.0
    """Requests run but no counter moved for this long: the server counts as wedged."""


class Logs(_Table):
    """The server's log files."""

    max_mb: Count = 64
    """Size in MB at which a log file is rotated."""
    keep_files: Count = 5
    """Rotated files kept a run."""
    keep_runs: Count = 20
    """Run folders kept."""


def _default_modes() -> tuple[ModeTable, ...]:
    return tuple(
        ModeTable(name=m.name, num_steps=m.num_steps, topk=m.topk, num_draft_tokens=m.num_draft_tokens)
        for m in DEFAULT_MODES
    )


class Profile(_Table):
    """A specctl profile."""

    profile: About = Field(default_factory=About)
    engine: Engine
    model: Model
    modes: Annotated[tuple[ModeTable, ...], Field(strict=False, min_length=1)] = Field(default_factory=_default_modes)
    """Modes that the running server can be flipped among. Default: tree 2/4/16, chain 2/1/3, off."""
    server: Server
    supervision: Supervision = Field(default_factory=Supervision)
    logs: Logs = Field(default_factory=Logs)

    @field_validator("modes")
    @classmethod
    def _fit_one_server(cls, tables: tuple[ModeTable, ...]) -> tuple[ModeTable, ...]:
        modes = [table.to_mode() for table in tables]
        if why := modes_problem(modes):
            raise ValueError(why)
        if all(mode.is_off for mode in modes):
            raise ValueError("at least one mode must speculate (num_steps above 0)")
        return tables

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def mode_list(self) -> tuple[Mode, ...]:
        return tuple(table.to_mode() for table in self.modes)

    @property
    def boot_mode(self) -> Mode:
        """The mode that the server is launched in: the one that all others fit into."""
        return boot_mode(self.mode_list)
