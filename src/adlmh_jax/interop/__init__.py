"""The sampler inside other programs: as functions, as a NumPyro kernel, as a command."""
