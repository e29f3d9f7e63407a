"""Runs on disk."""

from adlmh_jax.store.base import Nowhere, Store, StoreError
from adlmh_jax.store.directory import DRAWS, Directory, read_settings
from adlmh_jax.store.files import (
    Arrays,
    load_arrays,
    load_json,
    make_directory,
    save_arrays,
    save_json,
    save_text,
)
from adlmh_jax.store.fingerprint import run_settings

__all__ = [
    "DRAWS",
    "Arrays",
    "Directory",
    "Nowhere",
    "Store",
    "StoreError",
    "load_arrays",
    "load_json",
    "make_directory",
    "read_settings",
    "run_settings",
    "save_arrays",
    "save_json",
    "save_text",
]
