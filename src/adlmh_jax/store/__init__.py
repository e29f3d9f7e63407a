"""Runs on disk."""

from adlmh_jax.store.base import Nowhere, Store, StoreError
from adlmh_jax.store.directory import DRAWS, Directory, read_counts, read_settings
from adlmh_jax.store.files import (
    Arrays,
    load_arrays,
    load_json,
    make_directory,
    save_arrays,
    save_json,
    save_text,
)
from adlmh_jax.store.fingerprint import DATASETS, run_settings
from adlmh_jax.store.lock import Lock
from adlmh_jax.store.merge import clear_draws, merge

__all__ = [
    "DATASETS",
    "DRAWS",
    "Arrays",
    "Directory",
    "Lock",
    "Nowhere",
    "Store",
    "StoreError",
    "clear_draws",
    "load_arrays",
    "load_json",
    "make_directory",
    "merge",
    "read_counts",
    "read_settings",
    "run_settings",
    "save_arrays",
    "save_json",
    "save_text",
]
