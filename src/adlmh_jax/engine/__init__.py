"""Superchains run: steps, epochs, chunks, devices."""

from adlmh_jax.engine.build import Engine, build_engine, check_schedule
from adlmh_jax.engine.chunks import max_chunk_rounds
from adlmh_jax.engine.compiling import compile_quickly
from adlmh_jax.engine.config import RunConfig
from adlmh_jax.engine.done import Done, Resumption, RunState
from adlmh_jax.engine.entry import view_entry
from adlmh_jax.engine.host import use_all_cores, use_compilation_cache, use_default_cache
from adlmh_jax.engine.inplace import run_branch
from adlmh_jax.engine.inputs import Inputs, split
from adlmh_jax.engine.interruption import InterruptedWarning, Interruption, watch_signals
from adlmh_jax.engine.keeping import Draws, choose_names, find_rows, name_draws
from adlmh_jax.engine.keys import Addresses, address, fold_in, make_key, seed_of, words_of
from adlmh_jax.engine.looking import View
from adlmh_jax.engine.memory import check_memory
from adlmh_jax.engine.progress import Meter, make_meter
from adlmh_jax.engine.rounds import Keep, Kept, Phase
from adlmh_jax.engine.runner import (
    Devices,
    Host,
    Run,
    choose_devices,
    copy_state,
    place,
    restore,
    run_chunk,
    run_phases,
    share,
    to_host,
)
from adlmh_jax.engine.starting import (
    MAX_TRIES,
    build_draw,
    can_anneal,
    first_beta,
    repair,
    start_superchains,
)
from adlmh_jax.engine.superchain import (
    EngineSpec,
    SuperchainState,
    init_superchain,
    run_round,
)

__all__ = [
    "View",
    "Addresses",
    "Inputs",
    "address",
    "fold_in",
    "split",
    "words_of",
    "Devices",
    "Done",
    "Draws",
    "Engine",
    "EngineSpec",
    "Host",
    "InterruptedWarning",
    "Interruption",
    "Keep",
    "Kept",
    "MAX_TRIES",
    "Phase",
    "Resumption",
    "Run",
    "RunConfig",
    "RunState",
    "SuperchainState",
    "build_draw",
    "build_engine",
    "can_anneal",
    "check_memory",
    "check_schedule",
    "choose_devices",
    "choose_names",
    "compile_quickly",
    "copy_state",
    "find_rows",
    "first_beta",
    "init_superchain",
    "make_key",
    "Meter",
    "make_meter",
    "max_chunk_rounds",
    "name_draws",
    "place",
    "repair",
    "restore",
    "run_branch",
    "run_chunk",
    "run_phases",
    "run_round",
    "seed_of",
    "share",
    "start_superchains",
    "to_host",
    "use_all_cores",
    "use_compilation_cache",
    "use_default_cache",
    "view_entry",
    "watch_signals",
]
