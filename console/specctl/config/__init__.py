"""Profiles and folders. `paths` is light; `profile`, `load` and `schema` import pydantic."""
