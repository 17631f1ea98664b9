"""Makes the blocking classes (`forkd/_sync`) from those for asyncio (`forkd/_async`). `--check` only compares.

The classes have signatures, descriptions and one call of the core each; the core itself is shared. So this is a
change of words: `async def` becomes `def`, `await` is dropped, and names lose their prefix.
"""

from __future__ import annotations

import pathlib
import re
import sys

package = pathlib.Path(__file__).resolve().parent.parent / "src" / "forkd"

#: In this order. `Opening[X]` is the type of a call that can be awaited or entered; without asyncio it is X.
words = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bOpening\[((?:[^\[\]]|\[[^\]]*\])*)\]", r"\1"),
    (r"\bOpening, ", ""),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclose\b", "close"),
    (r"Union\[None, Awaitable\[None\]\]", "None"),
    (r"\bAwaitable, ", ""),
    (r"a pair of asyncio streams", "a socket"),
]


def blocking(name: str, source: str) -> str:
    """The blocking form of a module."""
    for pattern, replacement in words:
        source = re.sub(pattern, replacement, source)
    return f"# Made from _async/{name} by tools/make-sync.py: do not edit.\n{source}"


def main() -> int:
    stale = 0
    for path in sorted((package / "_async").glob("*.py")):
        if path.name in ("__init__.py", "_flavour.py"):
            continue
        made = blocking(path.name, path.read_text())
        target = package / "_sync" / path.name
        if target.exists() and target.read_text() == made:
            continue
        if "--check" in sys.argv:
            print(f"{target} is stale: run python3 {pathlib.Path(sys.argv[0])}", file=sys.stderr)
            stale = 1
        else:
            target.write_text(made)
    return stale


if __name__ == "__main__":
    sys.exit(main())
