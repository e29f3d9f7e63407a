"""A computation as a flat graph of primitive operations: pure JAX, no NumPyro, no sampling."""

from adlmh_jax.graph.alignment import (
    ALL,
    Alignments,
    align,
    axes_of_terms,
    find_users,
    is_independent,
    probe,
    reduce_to_elements,
    spread_to_term,
)
from adlmh_jax.graph.constants import are_equal, to_bytes
from adlmh_jax.graph.digest import digest_computation, digest_data
from adlmh_jax.graph.fragments import Cutter, Fragment, Operation
from adlmh_jax.graph.graph import Graph, trace_graph
from adlmh_jax.graph.layout import Layout, Rows, Slot, make_layout, read_rows, take_rows, write_rows
from adlmh_jax.graph.randomness import KEY_WORDS, Noise, key_struct, noise_sources
from adlmh_jax.graph.slicing import Demand, Slicer, add_input

__all__ = [
    "ALL",
    "Alignments",
    "Cutter",
    "Demand",
    "Fragment",
    "Graph",
    "KEY_WORDS",
    "Layout",
    "Noise",
    "Operation",
    "Rows",
    "Slicer",
    "Slot",
    "add_input",
    "align",
    "are_equal",
    "axes_of_terms",
    "digest_computation",
    "digest_data",
    "find_users",
    "is_independent",
    "key_struct",
    "make_layout",
    "noise_sources",
    "probe",
    "read_rows",
    "reduce_to_elements",
    "spread_to_term",
    "take_rows",
    "to_bytes",
    "trace_graph",
    "write_rows",
]
