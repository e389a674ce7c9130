"""Resource names and pages of lists, as every service of the contract takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tilewise.hwdb.errors import InvalidInput

PAGE, LARGEST_PAGE = 100, 1000
DIGITS = 15  # of a page's token
Item = TypeVar("Item")


def resource(name: str, *collections: str, field: str = "name") -> list[str]:
    """The ids in a resource name: resource("gpus/x/calibrations/y", "gpus/", "/calibrations/") is ["x", "y"]."""
    rest = name
    ids: list[str] = []
    for collection in reversed(collections):
        head, separator, id = rest.rpartition(collection)
        if not separator or not id or (collection == collections[0] and head):
            form = "".join(f"{each}..." for each in collections)
            raise InvalidInput(f"{field} {name!r} must have the form {form}", reason="BAD_RESOURCE_NAME", field=field)
        rest, ids = head, [id, *ids]
    return ids


def page(items: Sequence[Item], size: int, token: str) -> tuple[Sequence[Item], str]:
    """The items after `token`, and the token of the next page ("" where this is the last)."""
    first, last = window(size, token)
    return items[first:last], str(last) if last < len(items) else ""


def window(size: int, token: str) -> tuple[int, int]:
    """The numbers of a page's first item and of the one after its last."""
    if size < 0:
        raise InvalidInput(f"page_size {size} is negative", reason="BAD_PAGE_SIZE", field="page_size")
    if token and not (token.isdecimal() and len(token) <= DIGITS):
        raise InvalidInput(f"page_token {token[:80]!r} is none of ours", reason="BAD_PAGE_TOKEN", field="page_token")
    first = int(token or 0)
    return first, first + min(size or PAGE, LARGEST_PAGE)
