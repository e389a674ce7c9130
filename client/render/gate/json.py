"""A check as JSON: the contract's own names and SI units."""

from __future__ import annotations

from tilewise.client.render.data import to_json
from tilewise.client.render.gate.common import About
from tilewise.v1.check_pb2 import CheckResponse


def render(answer: CheckResponse, about: About) -> str:
    return to_json(answer)
