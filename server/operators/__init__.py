"""Architecture + workload -> OperatorTable: the only place that counts FLOPs and bytes."""

from tilewise.server.operators.build import build, walk

__all__ = ["build", "walk"]
