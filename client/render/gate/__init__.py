"""The answer of a check in every form: one result object, one function a form."""

from __future__ import annotations

from importlib import import_module

from tilewise.v1.check_pb2 import CheckResponse

FORMS = ("text", "json", "junit", "sarif", "github", "gitlab", "markdown")


def rendered(answer: CheckResponse, form: str, *, policy: str, command: str, strict: bool) -> str:
    """The answer in a form of FORMS; ends with a line break.

    policy: its path; command: what reproduces the answer; strict: whether what is uncertain counts as broken
    """
    text: str = import_module(f"tilewise.client.render.gate.{form}").render(
        answer, policy=policy, command=command, strict=strict
    )
    return text
