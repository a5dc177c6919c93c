"""The `specctl` command. Bodies of commands are imported when they run; `main` is the entry point."""
