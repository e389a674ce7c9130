"""A check for the terminal: what changed and by how much, the layers that did it, the rules, one line that sums up."""

from __future__ import annotations

from collections.abc import Iterator

from tilewise.client.render.gate.common import (
    About,
    by_path,
    counts,
    database,
    level,
    moved,
    rule_name,
    shown,
    verdict_word,
)
from tilewise.client.render.text import seconds
from tilewise.server.messages.words import word
from tilewise.v1.check_pb2 import (
    VERDICT_ERROR,
    VERDICT_FAIL,
    VERDICT_UNCERTAIN,
    CheckResponse,
    Comparison,
    Finding,
    LayerChange,
)
from tilewise.v1.prediction_pb2 import Wall

MOST_LAYERS = 3


def render(answer: CheckResponse, about: About) -> str:
    lines = [line for path, found in by_path(answer) for line in file_lines(path, found, about.strict)]
    told = (finding for finding in shown(answer) if finding.code != "TW107")  # its comparison says it already
    lines += [line for finding in told for line in finding_lines(finding)]
    lines += [f"allowed: {each.path} {each.code} {each.message} ({each.suppressed_by})"
              for each in answer.findings if each.suppressed_by]  # fmt: skip
    lines.append(f"{counts(answer, strict=about.strict)} ({database(answer)}; policy {about.policy})")
    return "\n".join(lines) + "\n"


def file_lines(path: str, comparisons: list[Comparison], strict: bool) -> Iterator[str]:
    yield path
    for each in comparisons:
        told = f"not evaluated: {each.error.message}" if each.verdict == VERDICT_ERROR else moved(each)
        why = f": {each.not_judged}" if each.not_judged and not each.suppressed_by else ""
        yield f"  {each.gpu} {each.workload} {each.metric}  {told}  [{each.limit}]  {verdict_word(each, strict=strict)}{why}"
        if each.verdict in (VERDICT_FAIL, VERDICT_UNCERTAIN):
            yield from (f"    {layer_line(layer)}" for layer in each.layers[:MOST_LAYERS])
            if each.message:
                yield f"    {each.message}"
    yield ""


def layer_line(layer: LayerChange) -> str:
    wall = word(Wall.DESCRIPTOR, layer.wall).replace("_", " ")
    return f"{layer.name} {seconds(layer.base_s)} -> {seconds(layer.head_s)} ({wall})"


def finding_lines(finding: Finding) -> Iterator[str]:
    place = f"{finding.path}:{finding.line}:{finding.column}" if finding.HasField("line") else finding.path
    yield f"{place}: {level(finding)} {finding.code} {rule_name(finding.code)}: {finding.message}"
    if finding.fix:
        yield f"  fix: {finding.fix}"
