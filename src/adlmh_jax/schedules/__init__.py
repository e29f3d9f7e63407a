"""How the entry to move is selected: LMH, AdLMH."""
