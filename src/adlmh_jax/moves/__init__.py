"""What moving one entry of the schedule computes: the branches of a step."""
