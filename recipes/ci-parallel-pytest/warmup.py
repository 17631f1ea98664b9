"""Loads pytest and what the project imports, and runs the suite once: libraries load more at the first call."""
import sys

sys.dont_write_bytecode = True
import parts

_result = parts.run("/srv/project")
if _result["exit_code"] != 0:
    raise SystemExit(f"the suite fails in the parent: {_result['failures']}")
parts.forget("/srv/project")
del _result, sys
