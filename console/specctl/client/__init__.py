"""Typed clients of the daemon's API: `blocking` for commands, `streaming` for the TUI, `waiting` for outcomes."""
