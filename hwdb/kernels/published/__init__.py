"""Kernel models fitted to what others published: whose kernels were timed is a part of every question and answer."""
