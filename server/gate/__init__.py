"""The gate: changed configurations judged against a policy. Its result object is the contract's own (tilewise/v1/check.proto)."""
