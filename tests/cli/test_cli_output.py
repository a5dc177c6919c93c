import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from specctl.cli.output import clean


def test_terminal_sequences_go_as_a_whole() -> None:
    assert clean("a\x1b[31mred\x1b[0m\x1b]0;title\x07b\x1b(Bc\r\nd\x9b31m") == "aredbc d31m"
    assert clean("\u202egnp.exe\u2066") == "gnp.exe"
    assert clean("tab\tstays, \u00e9 too") == "tab\tstays, \u00e9 too"


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    left = clean(text)
    assert not [c for c in left if c != "\t" and unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not set(left) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_plain_text_is_left_alone(text: str) -> None:
    assert clean(text) == text
