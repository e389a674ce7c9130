"""The 90 % interval of the ratio of two predicted steps."""

from __future__ import annotations

import math

from tilewise.hwdb.gpu import Gpu
from tilewise.server.report import Report
from tilewise.server.summary import SHARED


def ratio_of(gpu: Gpu, base: Report, head: Report) -> tuple[float, float, float]:
    """(low, ratio, high) of head's time over base's on one GPU; both must have a time."""
    assert base.step.time is not None and head.step.time is not None
    ratio = head.step.time.time_s / base.step.time.time_s
    widths = [0.5 * math.log(time.high_s / time.low_s) for time in (base.step.time, head.step.time)]
    margin = math.exp(math.sqrt((1 - SHARED) * sum(width**2 for width in widths)))
    return ratio / margin, ratio, ratio * margin
