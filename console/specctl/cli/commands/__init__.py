"""Commands that talk to the daemon, one module each, free of typer: plain functions that return an exit code."""
