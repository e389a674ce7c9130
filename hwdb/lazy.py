"""A property that is worked out when it is first asked for, and then kept: functools.cached_property as Python 3.12 has it.

Python 3.11's holds a lock, one for all objects of a class, while it works: a long call that let others go first within one stood in their way.
Two threads may both work it out here; what comes is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:
        def __init__(self, work: Callable[[Any], Any]) -> None:
            self.work, self.name, self.__doc__ = work, work.__name__, work.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            found = instance.__dict__[self.name] = self.work(instance)
            return found


__all__ = ["cached_property"]
