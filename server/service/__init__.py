"""The running service: process, identity, calls, limits, uploads, metrics."""
