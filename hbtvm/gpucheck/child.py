"""Run one step: ``python -m hbtvm.gpucheck.child FOLDER STEP``; prints its result as a line of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hbtvm.gpucheck.kinds import KINDS, LeftOut

MARK = "hbtvm.gpucheck: "


def main(folder: str, text: str) -> int:
    """Run a step; return 1 if it failed.

    `text`: JSON of the step's kind and fields.
    """
    fields = json.loads(text)
    try:
        said, figures = KINDS[fields.pop("kind")](Path(folder), **fields)
        result = {"status": "passed", "said": said, "figures": figures}
    except LeftOut as error:
        result = {"status": "left out", "said": str(error)}
    except Exception as error:
        said = " ".join(str(error).split())
        result = {"status": "failed", "said": f"{type(error).__name__}: {said}"[:2000]}
    print(MARK + json.dumps(result), flush=True)
    return int(result["status"] == "failed")


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
