"""Commands that work without a daemon; the only part of `cli` that may import specctl_launch."""
