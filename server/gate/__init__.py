"""The gate: changed configurations judged against a policy."""
