"""``python -m benchmarks.search``: measure spaces once, then replay searches on them.

``measure`` fills the cache (an hour on two cores; it goes on where it stopped), ``replay``
searches on what there is, and on the records that ship where nothing is, ``all`` does both. Figures
come as tables in ``report.md`` and as plots beside it, if matplotlib is installed. ``ship`` packs what was
measured into the folder of the records that ship. After a change to
the spaces the same command measures what is new: records that are no longer in a space are passed
over. After a change to the search itself, ``--fresh`` forgets the replayed runs.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.packed import pack
from benchmarks.search.machines import MACHINES, drawn_spaces
from benchmarks.search.measure import ENOUGH, log_of, measure
from benchmarks.search.quality import kinds, quality
from benchmarks.search.replay import SHIPPED, Recorded, Run, load, whole
from benchmarks.search.report import Runs, by_space, plot, quality_table, table
from benchmarks.search.spaces import SETS
from benchmarks.search.studies import STUDIES, Results, Study
from hbtvm.tuning.choices import ChoiceError


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=("all", "measure", "replay", "ship"), default="all")
    parser.add_argument("--folder", type=Path, default=Path(".cache/search"), help="where all is kept")
    parser.add_argument("--spaces", default="", metavar="TEXT", help="only those with this in their names")
    sets = (*SETS, *MACHINES)
    parser.add_argument("--set", choices=sets, action="append", help="only spaces of this set")
    parser.add_argument("--candidates", type=int, default=ENOUGH, help="to measure of each space")
    parser.add_argument("--lock", type=Path, help="file to lock, a minute at a time, while measuring")
    parser.add_argument("--studies", default="", metavar="TEXT", help="only those with this in their names")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=128, help="of each replayed search")
    parser.add_argument("--fresh", action="store_true", help="replay everything anew")
    arguments = parser.parse_args()
    names = arguments.set or SETS
    chosen = [spot for name in names for spot in SETS.get(name, ())]
    spots = [spot for spot in chosen if arguments.spaces in spot.name]
    if arguments.what in ("all", "measure"):
        measure(spots, arguments.folder, enough=arguments.candidates, lock=arguments.lock)
    if arguments.what == "ship":
        for spot in spots:
            log = log_of(arguments.folder, spot)
            if log.path.exists():
                pack(log.read().records, SHIPPED / f"{log.path.name}.xz")
    if arguments.what in ("all", "replay"):
        spaces = [found for spot in spots if (found := load(arguments.folder, spot)) is not None]
        drawn = [space for name in names if name in MACHINES for space in drawn_spaces(name)]
        spaces += [space for space in drawn if arguments.spaces in space.name]
        if not spaces:
            print(f"nothing was measured in {arguments.folder} yet", file=sys.stderr)
            return 1
        arguments.folder.mkdir(parents=True, exist_ok=True)
        kept = arguments.folder / "runs.jsonl"
        if arguments.fresh:
            kept.unlink(missing_ok=True)
        text = _replay(spaces, Results(kept), arguments)
        (arguments.folder / "report.md").write_text(text)
    return 0


def _replay(spaces: list[Recorded], results: Results, arguments: argparse.Namespace) -> str:
    """Go through the studies; print and return what they show."""
    sizes = ", ".join(f"{one.name} {len(one.costs):,}" for one in spaces)
    parts = [f"{arguments.seeds} seeds, {arguments.trials} trials; candidates: {sizes}"]
    print(parts[0], flush=True)
    for study in STUDIES:
        if arguments.studies not in study.name:
            continue
        runs = _runs(study, spaces, results, arguments.seeds, arguments.trials)
        sets = {name: [spot.name for spot in spots] for name, spots in SETS.items()}
        parts.append(f"## {study.name}: {study.title}\n\n{table(runs, arguments.trials, sets)}")
        parts.append(by_space(runs, arguments.trials))
        if find_spec("matplotlib") is not None:
            plot(study, runs, arguments.trials, arguments.folder / f"{study.name}.png")
        print("\n" + parts[-2] + "\n\n" + parts[-1], flush=True)
    if arguments.studies in "quality":
        found = {kind: quality(spaces, *kind, arguments.seeds) for kind in kinds()}
        parts.append("## Ranking\n\n" + quality_table(found))
        print("\n" + parts[-1], flush=True)
    return "\n\n".join(parts) + "\n"


def _runs(study: Study, spaces: list[Recorded], results: Results, seeds: int, trials: int) -> Runs:
    runs: dict[str, dict[str, list[Run]]] = {}
    searched = {one.name: [one] for one in spaces}
    if study.whole:
        searched = {f"model {shape}": whole(spaces, shape) for shape in sorted({one.shape for one in spaces})}
    for variant in study.variants:
        try:
            variant.choices.require()
        except ChoiceError as error:
            print(f"{study.name} goes without {variant.name}: {error}", flush=True)
            continue
        runs[variant.name] = {
            name: [results.run(own, spaces, variant, seed, trials) for seed in range(seeds)]
            for name, own in searched.items()
        }
    return runs


if __name__ == "__main__":
    sys.exit(main())
