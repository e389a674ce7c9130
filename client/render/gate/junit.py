"""A check as JUnit XML: a suite for each configuration, a case for each GPU, workload, metric and limit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml

from tilewise.client.render.gate.common import (
    About,
    by_path,
    database,
    of_budget,
    rule_name,
    sentence,
    shown,
    told,
    verdict_word,
)
from tilewise.v1.check_pb2 import SEVERITY_ERROR, CheckResponse, Comparison, Finding

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 has no way to say


def render(answer: CheckResponse, about: About) -> str:
    suites = xml.Element("testsuites", name="tilewise check")
    for path, comparisons in by_path(answer):
        suite = _suite(suites, path, answer)
        for each in comparisons:
            _comparison(suite, each, about.strict)
        for finding in shown(answer):
            if finding.path == path and not of_budget(finding):
                _finding(suite, finding)
    for path in answer.unchanged_paths:
        case = _case(_suite(suites, path, answer), path, "no shape change")
        xml.SubElement(case, "skipped", message="no shape change")
    for element in (*suites.findall("testsuite"), suites):
        _count(element)
    xml.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suites, encoding="unicode") + "\n"


def _suite(suites: xml.Element, path: str, answer: CheckResponse) -> xml.Element:
    suite = xml.SubElement(suites, "testsuite", name=_clean(path))
    properties = xml.SubElement(suite, "properties")
    xml.SubElement(properties, "property", name="database", value=database(answer))
    return suite


def _case(suite: xml.Element, path: str, name: str) -> xml.Element:
    return xml.SubElement(suite, "testcase", classname=_clean(path), name=_clean(name), time="0")


def _comparison(suite: xml.Element, each: Comparison, strict: bool) -> None:
    case = _case(suite, each.path, f"{each.gpu} {each.workload} {each.metric} {each.limit}")
    verdict = verdict_word(each, strict=strict)
    message = _clean(each.error.message if verdict == "error" else told(each))
    if verdict == "not judged" and strict:
        xml.SubElement(case, "error", message=f"{_clean(each.not_judged)}: {message}", type="not judged")
        return
    if verdict == "FAIL":
        xml.SubElement(case, "failure", message=message, type="budget").text = _clean(each.message) or None
    elif verdict == "error":
        xml.SubElement(case, "error", message=message, type="not evaluated")
    elif verdict == "pass":
        xml.SubElement(case, "system-out").text = message
    else:
        reason = f" ({each.suppressed_by})" if each.suppressed_by else ""
        xml.SubElement(case, "skipped", message=_clean(f"{verdict}{reason}: {message}"))


def _finding(suite: xml.Element, finding: Finding) -> None:
    """A rule that is no error is skipped with its message: JUnit knows no warnings."""
    case = _case(suite, finding.path, f"{finding.code} {rule_name(finding.code)} {finding.field}".rstrip())
    kind = "failure" if finding.severity == SEVERITY_ERROR else "skipped"
    xml.SubElement(case, kind, message=_clean(sentence(finding)))


def _count(element: xml.Element) -> None:
    kinds = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for name, tag in kinds.items():
        element.set(name, str(sum(1 for _ in element.iter(tag))))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
