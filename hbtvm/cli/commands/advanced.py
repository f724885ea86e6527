"""Options of the search of ``hbtvm tune``; `benchmarks.search` compares them."""

from __future__ import annotations

import argparse
from typing import Any

from hbtvm.cli.arguments import DEFAULT_LOG, seconds, whole
from hbtvm.cli.parser import Parser
from hbtvm.tuning.choices import ACQUISITIONS, COST_MODELS, EXPLORERS, FEATURES, PRESETS, Choices


def add_limits(parser: Parser) -> None:
    """Add the options that set how long to search, and where measurements go."""
    group = parser.add_argument_group("search")
    group.add_argument(
        "--time-budget",
        type=seconds,
        metavar="TIME",
        help="longest time to search, in seconds or as 30s, 5m, 2h (default: unlimited with --trials)",
    )
    group.add_argument(
        "--trials",
        type=whole(1),
        metavar="N",
        help="candidates to try, those in the log included (default: 240, in at most 100 seconds; unlimited "
        "with --time-budget)",
    )
    group.add_argument(
        "--log",
        default=DEFAULT_LOG,
        metavar="PATH",
        help="tuning log to resume from and to append to; created if missing (default: %(default)s)",
    )


def add_machines(parser: Parser) -> None:
    """Add the options of measuring on other machines."""
    group = parser.add_rare_group("other machines")
    group.add_argument(
        "--rpc-tracker",
        metavar="HOST:PORT",
        help="measure on all devices of this TVM RPC tracker in parallel, with --threads 1",
    )
    group.add_argument("--rpc-key", metavar="KEY", help="key of the tracker's devices to use")
    group.add_argument(
        "--export",
        metavar="TRIALS.tar",
        help="measure nothing here: build candidates (240, or --trials) into this archive, for hbtvm measure "
        "on another machine; hbtvm log import then adds the times to the log, and the same command plans a "
        "second round",
    )


def add_search_options(parser: Parser) -> None:
    """Add the options of the ``advanced`` group."""
    usual = Choices()
    group = parser.add_rare_group(
        "advanced", "how to search; seldom worth changing. Single parts replace the preset's"
    )
    group.add_argument(
        "--no-transfer", action="store_true", help="don't learn from other models' measurements"
    )
    group.add_argument(
        "--seed",
        type=whole(0),
        default=0,
        metavar="N",
        help="the same seed, log and times give the same candidates (default: %(default)s)",
    )
    group.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        metavar="NAME",
        default="default",
        help=f"a whole search, one of {', '.join(PRESETS)}: autotvm is the paper's, process uses a Gaussian "
        "process alone, and the last five serve comparisons (default: %(default)s)",
    )
    for name, choices, text in (
        (
            "explorer",
            EXPLORERS,
            f"method that proposes candidates, one of {', '.join(EXPLORERS)}; only annealing uses a cost "
            "model, tpe needs Optuna",
        ),
        (
            "cost-model",
            COST_MODELS,
            f"model of candidates' speed, one of {', '.join(COST_MODELS)}; rank_process is rank, corrected "
            "by gaussian_process, and tree_gru needs PyTorch",
        ),
        (
            "features",
            FEATURES,
            f"features of the cost model, one of {', '.join(FEATURES)}: the choices themselves, relations "
            "between loops, the loops in a row, or relations and choices",
        ),
        (
            "acquisition",
            ACQUISITIONS,
            f"merit of a candidate, one of {', '.join(ACQUISITIONS)}: its predicted speed, an upper "
            "confidence bound, or its expected gain; auto is ei with a Gaussian process, else mean",
        ),
    ):
        default = _usual(getattr(usual, name.replace("-", "_")))
        group.add_argument(f"--{name}", choices=choices, metavar="NAME", help=f"{text} ({default})")
    group.add_argument(
        "--diversity",
        type=whole(1),
        metavar="N",
        help=f"pick a diverse batch from N times as many candidates; 1 for none ({_usual(usual.diversity)})",
    )
    group.add_argument(
        "--epsilon",
        type=share,
        metavar="SHARE",
        help=f"random share of candidates, from 0 to 1 ({_usual(usual.epsilon)})",
    )


def _usual(value: object) -> str:
    return f"the default preset's: {value}"


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, such as 0.05, not {text!r}")
    return number


def search_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options of this module as keywords of `hbtvm.search`."""
    names = ("preset", "explorer", "cost_model", "features", "acquisition", "diversity", "epsilon")
    return {
        "trials": arguments.trials,
        "time_budget": arguments.time_budget,
        "transfer": not arguments.no_transfer,
        "seed": arguments.seed,
        "rpc_tracker": arguments.rpc_tracker,
        "rpc_key": arguments.rpc_key,
        **{name: getattr(arguments, name) for name in names},
    }
