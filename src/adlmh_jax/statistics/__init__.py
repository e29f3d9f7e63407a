"""Sums and statistics that ride along with the chains."""
