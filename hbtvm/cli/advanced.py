"""Options of ``hbtvm tune`` that say how it searches; `benchmarks.search` compares them."""

from __future__ import annotations

import argparse
from typing import Any

from hbtvm.cli.arguments import whole
from hbtvm.tuning.choices import ACQUISITIONS, COST_MODELS, EXPLORERS, FEATURES, Choices


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Options of the ``advanced`` group."""
    usual = Choices()
    group = parser.add_argument_group("advanced", "how to search; seldom worth changing")
    group.add_argument(
        "--explorer",
        choices=EXPLORERS,
        metavar="NAME",
        default=usual.explorer,
        help=f"what proposes candidates, one of {', '.join(EXPLORERS)}; only annealing learns from a "
        "cost model, tpe needs Optuna (default: %(default)s)",
    )
    group.add_argument(
        "--cost-model",
        choices=COST_MODELS,
        metavar="NAME",
        default=usual.cost_model,
        help=f"what learns which candidates are fast, one of {', '.join(COST_MODELS)}; tree_gru "
        "needs PyTorch (default: %(default)s)",
    )
    group.add_argument(
        "--features",
        choices=FEATURES,
        metavar="KIND",
        default=usual.features,
        help=f"what the cost model learns on, one of {', '.join(FEATURES)}: the choices themselves, "
        "relations between loops, the loops in a row, or relations and choices (default: %(default)s)",
    )
    group.add_argument(
        "--acquisition",
        choices=ACQUISITIONS,
        metavar="NAME",
        default=usual.acquisition,
        help=f"merit of a candidate, one of {', '.join(ACQUISITIONS)}: its predicted speed, an upper "
        "confidence bound, or its expected gain; auto is ei for a gaussian_process, else mean "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--diversity",
        type=whole(1),
        default=usual.diversity,
        metavar="N",
        help="pick a batch for variety from N times as many candidates; 1 for none (default: %(default)s)",
    )
    group.add_argument(
        "--epsilon",
        type=share,
        default=usual.epsilon,
        metavar="SHARE",
        help="share of candidates that are drawn at random, from 0 to 1 (default: %(default)s)",
    )


def share(text: str) -> float:
    """Read a number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, such as 0.05, not {text!r}")
    return number


def search_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The group's values, as `hbtvm.search` takes them."""
    names = ("explorer", "cost_model", "features", "acquisition", "diversity", "epsilon")
    return {name: getattr(arguments, name) for name in names}
