"""config.json of any family -> Architecture. The only place that knows families' key names."""

from .counting import ParameterCount, count
from .model import Architecture
from .reader import read, read_with

__all__ = ["Architecture", "ParameterCount", "count", "read", "read_with"]
