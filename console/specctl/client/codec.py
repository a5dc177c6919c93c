"""JSON to and from the value types of `specctl.core`, and the errors that a reply can mean."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from specctl.client.sse import Message
from specctl.core.errors import ErrorBody, SpecctlError, error_from_body
from specctl.core.events import Event
from specctl.core.snapshot import SNAPSHOT_VERSION, Snapshot

T = TypeVar("T")

_MISMATCH_REMEDY = "Run `specctl down` with the version that started it, then `specctl up PROFILE` with this one"


class ApiVersionError(SpecctlError):
    """The daemon answered something that this version does not understand."""

    kind = "api_version"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"the daemon's API version is different ({what}: {why})", remedy=_MISMATCH_REMEDY)


_decoders: dict[object, msgspec.json.Decoder[Any]] = {}


def encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def decode(kind: type[T], data: bytes, what: str) -> T:
    """`data` as a `kind`. Unknown fields are ignored. Raises ApiVersionError naming `what` and the field."""
    if (decoder := _decoders.get(kind)) is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        value: T = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ApiVersionError(what, str(error)) from error
    if isinstance(value, Snapshot) and value.version != SNAPSHOT_VERSION:
        raise ApiVersionError(what, f"snapshot version {value.version}, this one reads {SNAPSHOT_VERSION}")
    return value


def decode_message(message: Message) -> Event | Snapshot | None:
    """One message of /v1/stream; None for a kind that this version does not know."""
    match message.event:
        case "event":
            return decode(Event, message.data, "event of the stream")
        case "snapshot":
            return decode(Snapshot, message.data, "snapshot of the stream")
    return None


class _ErrorReply(msgspec.Struct):
    error: ErrorBody


def error_of(status: int, data: bytes, what: str) -> SpecctlError:
    """The error that a reply with `status` >= 400 means."""
    if status in (404, 405):
        # Every route of this version exists in a daemon of this version.
        return ApiVersionError(what, f"status {status}")
    try:
        return error_from_body(msgspec.json.decode(data, type=_ErrorReply).error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return SpecctlError(f"the daemon answered status {status} to {what}", remedy="Its log has the reason")
