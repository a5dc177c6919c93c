"""The engine patch."""
