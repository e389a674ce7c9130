"""What a check's answer means to the shell. The codes are part of the interface: docs/gate.md, tests/client/test_check_command.py."""

from __future__ import annotations

from google.rpc.code_pb2 import INVALID_ARGUMENT, RESOURCE_EXHAUSTED

from tilewise.v1.check_pb2 import (
    SEVERITY_ERROR,
    VERDICT_ERROR,
    VERDICT_FAIL,
    VERDICT_NOT_JUDGED,
    VERDICT_UNCERTAIN,
    CheckResponse,
    Comparison,
)

PASSED, FAILED, BAD_INPUT, NOT_EVALUATED, NOTHING = 0, 1, 2, 3, 5
_CONFIG_AT_FAULT = (INVALID_ARGUMENT, RESOURCE_EXHAUSTED)


def exit_code(answer: CheckResponse, *, strict: bool = False) -> int:
    """0 every budget holds, or only warnings; 1 broken (strict: or uncertain); 2 a configuration is at fault; 3 not evaluated

    (strict: or not judged).
    """
    if answer.verdict == VERDICT_ERROR:
        minded = [each for each in answer.comparisons if each.verdict == VERDICT_ERROR and counts(each)]
        return BAD_INPUT if any(each.error.code in _CONFIG_AT_FAULT for each in minded) else NOT_EVALUATED
    if answer.verdict == VERDICT_FAIL or (strict and answer.verdict == VERDICT_UNCERTAIN):
        return FAILED
    return NOT_EVALUATED if strict and answer.verdict == VERDICT_NOT_JUDGED else PASSED


def counts(each: Comparison) -> bool:
    """Whether a comparison can turn the check red."""
    return each.severity == SEVERITY_ERROR and not each.suppressed_by
