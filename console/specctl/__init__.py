"""specctl: a terminal operations console for SGLang servers with speculative decoding."""

__version__ = "0.1.0"
