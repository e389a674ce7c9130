"""Measured tables as referees: read one, predict its rows, say how far off the predictions are."""
