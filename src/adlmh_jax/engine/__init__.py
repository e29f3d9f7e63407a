"""Superchains run: steps, epochs, chunks, devices."""
