"""SGLang's pages as values: /metrics, /server_info, /v1/loads. Parsing only; nothing here talks to a server.

Secrets (`api_key`, `admin_api_key` in /server_info) are never decoded: the structs name the few fields that are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

TOKENS = "sglang:realtime_tokens_total"
RUNNING = "sglang:num_running_reqs"
QUEUED = "sglang:num_queue_reqs"
KV_USAGE = "sglang:token_usage"
TTFT = "sglang:time_to_first_token_seconds_bucket"
ITL = "sglang:inter_token_latency_seconds_bucket"
_SPEC_COUNTERS = {
    "specctl_rounds_total": "rounds",
    "specctl_request_rounds_total": "request_rounds",
    "specctl_committed_tokens_total": "committed_tokens",
    "specctl_drafted_tokens_total": "drafted_tokens",
}
# The page has thousands of lines and a few dozen are wanted; parsing only those is 20 times faster.
_WANTED = tuple(
    f"{name}{{"
    for name in (
        TOKENS,
        RUNNING,
        QUEUED,
        KV_USAGE,
        TTFT,
        ITL,
        *_SPEC_COUNTERS,
        "specctl_active_mode",
        "specctl_active_epoch",
    )
)


@dataclass(frozen=True, slots=True)
class ModeCounters:
    """Lifetime counters of one mode, summed over data-parallel ranks. Units: rounds, tokens."""

    rounds: int = 0
    request_rounds: int = 0
    committed_tokens: int = 0
    drafted_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage:
    """What is used of /metrics. None = the server does not export it. Histograms: upper bound (s) -> cumulative count.

    active_epoch: (dp_rank, tp_rank) -> epoch. kv_usage: of the fullest data-parallel rank, 0 to 1.
    """

    at: float
    decode_tokens: float | None = None
    prefill_tokens: float | None = None
    running: float | None = None
    queued: float | None = None
    kv_usage: float | None = None
    ttft: Mapping[float, float] = field(default_factory=dict)
    itl: Mapping[float, float] = field(default_factory=dict)
    by_mode: Mapping[str, ModeCounters] = field(default_factory=dict)
    active_epoch: Mapping[tuple[str, str], int] = field(default_factory=dict)
    active_mode: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def progress(self) -> float:
        """A number that grows with any work: tokens in, tokens out, rounds."""
        return (
            (self.decode_tokens or 0.0)
            + (self.prefill_tokens or 0.0)
            + sum(counters.rounds for counters in self.by_mode.values())
        )


@lru_cache(maxsize=4096)
def _sample(line: str) -> Sample:
    """One line of the page. Most lines are the same from one poll to the next, and parsing is what costs."""
    for family in text_string_to_metric_families(line + "\n"):
        return family.samples[0]
    raise ValueError(f"no sample in {line[:80]!r}")


def _samples(text: str) -> list[Sample]:
    return [_sample(line) for line in text.splitlines() if line.startswith(_WANTED)]


def _by_data_rank(samples: Iterable[Sample]) -> dict[str, float]:
    """dp_rank -> value. Ranks of one data-parallel group report the same work: the largest stands for the group."""
    groups: dict[str, float] = {}
    for sample in samples:
        rank = sample.labels.get("dp_rank", "0")
        groups[rank] = max(groups.get(rank, sample.value), sample.value)
    return groups


def _total(samples: list[Sample]) -> float | None:
    return sum(_by_data_rank(samples).values()) if samples else None


def _buckets(samples: Iterable[Sample]) -> dict[float, float]:
    buckets: dict[float, float] = {}
    for sample in samples:
        bound = float(sample.labels["le"])
        buckets[bound] = buckets.get(bound, 0.0) + sample.value
    return buckets


def _rank(sample: Sample) -> tuple[str, str]:
    return sample.labels.get("dp_rank", "0"), sample.labels.get("tp_rank", "0")


def _mode_counters(by_name: Mapping[str, list[Sample]]) -> dict[str, ModeCounters]:
    values: dict[str, dict[str, int]] = {}
    for name, field_name in _SPEC_COUNTERS.items():
        by_mode: dict[str, list[Sample]] = {}
        for sample in by_name.get(name, ()):
            by_mode.setdefault(sample.labels.get("mode", ""), []).append(sample)
        for mode, samples in by_mode.items():
            values.setdefault(mode, {})[field_name] = int(_total(samples) or 0)
    return {mode: ModeCounters(**counters) for mode, counters in values.items()}


def parse_metrics(text: str, at: float) -> MetricsPage:
    """Reads a /metrics page. Raises ValueError when a wanted line is not Prometheus text."""
    by_name: dict[str, list[Sample]] = {}
    for sample in _samples(text):
        by_name.setdefault(sample.name, []).append(sample)
    tokens = by_name.get(TOKENS, [])
    usage = by_name.get(KV_USAGE, [])
    return MetricsPage(
        at=at,
        # Before the first decode round the family has no "decode" sample yet; the family itself says it will.
        decode_tokens=(_total([s for s in tokens if s.labels.get("mode") == "decode"]) or 0.0) if tokens else None,
        prefill_tokens=_total_prefill(tokens),
        running=_total(by_name.get(RUNNING, [])),
        queued=_total(by_name.get(QUEUED, [])),
        kv_usage=max((s.value for s in usage), default=None),
        ttft=_buckets(by_name.get(TTFT, ())),
        itl=_buckets(by_name.get(ITL, ())),
        by_mode=_mode_counters(by_name),
        active_epoch={_rank(s): int(s.value) for s in by_name.get("specctl_active_epoch", ())},
        active_mode={
            _rank(s): s.labels.get("mode", "") for s in by_name.get("specctl_active_mode", ()) if s.value == 1
        },
    )


def _total_prefill(tokens: list[Sample]) -> float | None:
    kinds = {s.labels.get("mode") for s in tokens} - {"decode"}
    return sum(_total([s for s in tokens if s.labels.get("mode") == kind]) or 0.0 for kind in kinds) if tokens else None


class Refusal(msgspec.Struct):
    epoch: int = 0
    reason: str = ""


class ModeCost(msgspec.Struct):
    seconds: float | None = None
    bytes: int | None = None


class ReadBack(msgspec.Struct):
    """The engine patch's own account, one a data-parallel group. `epoch`: last commanded, `active_epoch`: live."""

    patch: str = ""
    mode: str | None = None
    mode_id: int | None = None
    epoch: int = 0
    active_epoch: int = 0
    pending: str | None = None
    cause: str | None = None
    flips: int = 0
    refusal: Refusal | None = None
    rank: int = 0
    tp_size: int = 1
    engine_ms: float | None = None
    modes: dict[str, ModeCost] = {}


class _InternalState(msgspec.Struct):
    specctl: ReadBack | None = None


class _ServerInfo(msgspec.Struct):
    version: str | None = None
    model_path: str | None = None
    speculative_draft_model_path: str | None = None
    max_running_requests: int | None = None
    internal_states: list[_InternalState | None] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfoPage:
    at: float
    version: str | None = None
    model: str | None = None
    draft: str | None = None
    max_running_requests: int | None = None
    groups: tuple[ReadBack, ...] = ()


_info_decoder = msgspec.json.Decoder(_ServerInfo, strict=False)


def parse_server_info(body: bytes, at: float) -> ServerInfoPage:
    """Reads a /server_info page. Raises ValueError (msgspec.DecodeError) when it is not what it should be."""
    info = _info_decoder.decode(body)
    return ServerInfoPage(
        at=at,
        version=info.version,
        model=info.model_path,
        draft=info.speculative_draft_model_path,
        max_running_requests=info.max_running_requests,
        groups=tuple(
            state.specctl for state in info.internal_states if state is not None and state.specctl is not None
        ),
    )


class _Load(msgspec.Struct):
    num_running_reqs: int = 0


class _Loads(msgspec.Struct):
    loads: list[_Load] = []


def parse_loads(body: bytes) -> int:
    """Running requests over all ranks from /v1/loads. Raises ValueError when it is not what it should be."""
    return sum(load.num_running_reqs for load in msgspec.json.decode(body, type=_Loads).loads)
