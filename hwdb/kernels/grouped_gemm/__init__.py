"""Grouped products: layers of experts."""
