"""The table of docs/families.md: every family that is read."""

from tilewise.client.render.families import compared
from tilewise.server.architecture.families import read_in_part, unread
from tilewise.server.architecture.listing import listings


def table() -> str:
    """What `tilewise families` lists."""
    found = listings()
    rows = [
        f"{len(found)} families are read.",
        "",
        "| model_type | what is read | source | program beside the framework's own | limits |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {each.name} | {each.what} | {each.source} | {compared(each.name)} | {'; '.join(each.limits)} |"
        for each in found
    ]
    return "\n".join(rows)


def not_read() -> str:
    """What unread.toml says, a row a reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, reason in unread().items():
        reasons.setdefault(reason, []).append(name)
    rows = [
        f"{len(read_in_part())} are answered for their text part alone: {', '.join(read_in_part())}.",
        "",
        f"{len(unread())} are refused by name, with the reason:",
        "",
        "| kind | why | model_type |",
        "|---|---|---|",
    ]
    return "\n".join((*rows, *(f"| {kind} | {why} | {', '.join(names)} |" for (kind, why), names in reasons.items())))
