"""What a run gives back: draws, verdicts, ArviZ data, plots."""
