"""The answer of a check in every form: one result object, one function a form."""

from __future__ import annotations

from importlib import import_module

from tilewise.client.render.gate.common import About
from tilewise.v1.check_pb2 import CheckResponse

FORMS = ("text", "json", "junit", "sarif", "github", "gitlab", "markdown")


def rendered(answer: CheckResponse, form: str, about: About) -> str:
    """The answer in a form of FORMS; ends with a line break."""
    text: str = import_module(f"tilewise.client.render.gate.{form}").render(answer, about)
    return text
