"""A computation as a flat graph of primitive operations: pure JAX, no NumPyro, no sampling."""
