"""Write the made parts of README.md and docs/*.md anew.

python scripts/docs                     transcripts, and every part that takes seconds
python scripts/docs NAME ...            these parts, as their marks name them: those of scripts/research take minutes
python scripts/docs --check [NAME ...]  write nothing; exit 1 where a page is not what a run gives
"""

import os
import sys

import pages


def main(words: list[str]) -> int:
    for name in [name for name in os.environ if name.startswith("TILEWISE_")]:
        del os.environ[name]  # transcripts show what a command does by default
    asked, check = [word for word in words if word != "--check"], "--check" in words
    stale = 0
    for page in pages.PAGES:
        before = page.read_text(encoding="utf-8")
        after = pages.updated(before, lambda name: name in asked if asked else not pages.slow(name))
        if after != before:
            stale += 1
            print(f"{page.name} {'is not what a run gives' if check else 'written'}")
            if not check:
                page.write_text(after, encoding="utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
