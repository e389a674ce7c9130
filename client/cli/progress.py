"""How far long work has come, on stderr: nothing for what ends within PATIENCE_S, then a line every BETWEEN_S."""

from __future__ import annotations

import time

import click

from tilewise.v1.prediction_pb2 import Progress

PATIENCE_S = 2.0
BETWEEN_S = 1.0


class Teller:
    """Hears of progress and tells of it in lines that a log bears too."""

    def __init__(self, what: str) -> None:
        self._what, self._next = what, time.monotonic() + PATIENCE_S

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + BETWEEN_S
            of = f" of {progress.total_count:,}" if progress.total_count else ""
            click.echo(f"{progress.done_count:,}{of} {self._what}", err=True)
