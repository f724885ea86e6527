"""All that tells a search's winners tells the same: the summary, log best, the report and the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hbtvm.api import search
from hbtvm.cli.main import main
from hbtvm.cli.progress.summary import print_report
from hbtvm.logs import Log
from hbtvm.report.story import tell
from hbtvm.words.quantities import duration
from tests import models

pytestmark = pytest.mark.usefixtures("shared_workers")

SIZES = (1, 64)


def test_a_real_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, package = tmp_path / "log.jsonl", tmp_path / "m.tar"
    model = models.ZOO["xgb_real_base"]()
    for trials in (16, 20):  # a search, and the same carried on
        found = search(model, batch_sizes=SIZES, threads=1, trials=trials, log=log)
        found.model.save(package)
        print_report(found.result, package, log)
        summary = capsys.readouterr().out

        assert main(["inspect", str(package), "--json"]) == 0
        kernels = json.loads(capsys.readouterr().out)["kernels"]
        assert [kernel["rows"] for kernel in kernels] == list(SIZES)
        assert main(["log", "best", str(log), "--json"]) == 0
        records = {one["workload"]["rows"]: one for one in json.loads(capsys.readouterr().out)}
        assert set(records) == set(SIZES)
        assert main(["log", "best", str(log)]) == 0
        table = capsys.readouterr().out
        chapters = {chapter.rows: chapter.winner() for chapter in tell(Log(log).read().records).chapters}
        for kernel in kernels:
            one, told = records[kernel["rows"]], chapters[kernel["rows"]]
            assert one["final"]["id"] and len(one["times"]) == 5
            assert (one["strategy"], sorted(one["times"])[2]) == (kernel["strategy"], kernel["seconds"])
            # A package's kernels may have knobs of their own besides.
            assert one["config"].items() <= kernel["config"].items()
            assert told is not None
            assert (told.strategy, told.cost, told.config) == (
                one["strategy"],
                kernel["seconds"],
                one["config"],
            )
            assert duration(kernel["seconds"]) in summary
            assert duration(kernel["seconds"]) in table
        assert main(["report", str(log), "-o", str(tmp_path / "r.html")]) == 0
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert all(duration(kernel["seconds"]) in page for kernel in kernels)
        capsys.readouterr()
