"""How a new value of a component is proposed, and what "auto" chooses."""
