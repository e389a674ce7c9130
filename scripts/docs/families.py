"""The table of docs/families.md: every family that is read."""

from tilewise.client.render.families import compared
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
