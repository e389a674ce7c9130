"""Kernels bound by memory."""
