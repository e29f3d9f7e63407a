"""Samplers of other people on the same models and data; see ``report.py``."""
