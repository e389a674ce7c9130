"""Advice: which nearby shape, way of running or number format is faster, by how much, why, and at what price."""
