"""Value types that every part shares. Imports nothing else of specctl."""
