"""The second front door: a real torch module, traced on the meta device, instead of a config.json. Needs torch."""

from tilewise.server.trace.module import trace

__all__ = ["trace"]
