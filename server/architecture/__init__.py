"""config.json of any family -> Architecture. The only place that knows families' key names."""

from tilewise.server.architecture.counting import ParameterCount, count
from tilewise.server.architecture.model import Architecture
from tilewise.server.architecture.reader import read, read_with, sizes

__all__ = ["Architecture", "ParameterCount", "count", "read", "read_with", "sizes"]
