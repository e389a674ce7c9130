"""Replace what stands between two marks of docs/published.md."""

from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "published.md"


def put(mark: str, text: str) -> None:
    """Write `text` between <!-- mark:begin --> and <!-- mark:end -->."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
