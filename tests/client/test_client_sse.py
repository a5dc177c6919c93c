import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.client import sse
from specctl.client.sse import Message, Parser


def test_reads_id_event_data_and_skips_comments() -> None:
    parser = Parser()
    assert parser.feed(b": hello\nid: 4\nevent: event\ndata: {\ndata: }\n\nevent: only a name\n\n") == [
        Message("event", b"{\n}")
    ]
    assert parser.last_id == "4"


@given(st.lists(st.integers(0, 200)), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_blocks_of_any_size_give_the_same_messages(cuts: list[int], end: bytes) -> None:
    lines = [
        b"id: 1",
        b"event: event",
        b'data: {"a":1}',
        b"",
        b":c",
        b"data:x",
        b"data: y",
        b"",
        b"id: 9",
        b"data: z",
        b"",
    ]
    text = end.join(lines) + end + end
    edges = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    parser = Parser()
    messages = [m for a, b in itertools.pairwise(edges) for m in parser.feed(text[a:b])]
    messages += parser.feed(b":")
    assert messages == [Message("event", b'{"a":1}'), Message("message", b"x\ny"), Message("message", b"z")]
    assert parser.last_id == "9"


def test_restart_drops_the_unfinished_message_and_keeps_the_id() -> None:
    parser = Parser()
    parser.feed(b"id: 3\ndata: half")
    parser.restart()
    assert parser.feed(b"data: whole\n\n") == [Message("message", b"whole")]
    assert parser.last_id == "3"


@pytest.mark.parametrize("text", [b"x", b"data: x\n"])
def test_a_message_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sse, "MAX_MESSAGE", 100)
    parser = Parser()
    with pytest.raises(ValueError, match="above 100 bytes"):
        for _ in range(200):
            parser.feed(text)
