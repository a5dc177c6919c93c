"""Leaves the tests that need torch to the engine's interpreter; `test_cpu_operators.py` runs them there."""

collect_ignore = ["engine_side"]
