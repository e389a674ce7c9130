"""Calibrations from what others measured: importers, and what they make of the rows. No row of theirs is kept."""
