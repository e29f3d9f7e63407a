"""A computation as a flat graph of primitive operations: pure JAX, no NumPyro, no sampling."""

from adlmh_jax.graph.alignment import (
    ALL,
    Alignments,
    align,
    axes_of_terms,
    find_users,
    is_independent,
    reduce_to_elements,
    spread_to_term,
)
from adlmh_jax.graph.bands import Band, Bands, Box, find_bands
from adlmh_jax.graph.batching import map_last
from adlmh_jax.graph.binomial import draw_binomial
from adlmh_jax.graph.comparison import begins_with
from adlmh_jax.graph.constants import (
    PerDataset,
    are_equal,
    holds,
    is_common,
    of_dataset,
    stack,
    to_bytes,
)
from adlmh_jax.graph.digest import digest_computation, digest_data
from adlmh_jax.graph.elimination import (
    Elimination,
    Scope,
    Stack,
    Table,
    Variable,
    pick,
    plan_elimination,
    take,
)
from adlmh_jax.graph.folding import host_array
from adlmh_jax.graph.fragments import Cutter
from adlmh_jax.graph.gamma import threefry
from adlmh_jax.graph.graph import Graph, shapes_of, trace_graph
from adlmh_jax.graph.layout import (
    Layout,
    Rows,
    Slot,
    make_layout,
    read_row,
    read_rows,
    take_rows,
    write_rows,
)
from adlmh_jax.graph.operations import Code, Fragment, Node, Operation, run_at_each
from adlmh_jax.graph.probing import Probe, find_offender
from adlmh_jax.graph.randomness import (
    KEY_WORDS,
    MAX_BULK_WORDS,
    Noise,
    fixed_key,
    key_struct,
    noise_sources,
)
from adlmh_jax.graph.slicing import Demand, Slicer, add_input, to_demand
from adlmh_jax.graph.switches import Switched, find_switches, sum_where

__all__ = [
    "PerDataset",
    "holds",
    "host_array",
    "is_common",
    "of_dataset",
    "shapes_of",
    "ALL",
    "Alignments",
    "Band",
    "Bands",
    "Box",
    "Code",
    "Cutter",
    "Demand",
    "Elimination",
    "Fragment",
    "Graph",
    "KEY_WORDS",
    "MAX_BULK_WORDS",
    "Layout",
    "Noise",
    "Node",
    "Operation",
    "Probe",
    "Rows",
    "Scope",
    "Slicer",
    "Slot",
    "Stack",
    "Switched",
    "Table",
    "Variable",
    "add_input",
    "align",
    "are_equal",
    "axes_of_terms",
    "begins_with",
    "digest_computation",
    "digest_data",
    "draw_binomial",
    "find_bands",
    "find_offender",
    "find_switches",
    "find_users",
    "fixed_key",
    "is_independent",
    "key_struct",
    "make_layout",
    "map_last",
    "noise_sources",
    "pick",
    "plan_elimination",
    "read_row",
    "read_rows",
    "reduce_to_elements",
    "run_at_each",
    "spread_to_term",
    "stack",
    "sum_where",
    "take",
    "take_rows",
    "threefry",
    "to_bytes",
    "to_demand",
    "trace_graph",
    "write_rows",
]
