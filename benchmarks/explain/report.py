"""Results as Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks import common
from benchmarks.explain.cases import CASES, ROWS

NAMES = {
    ("lightgbm", "pred_contrib"): "LightGBM `pred_contrib`",
    ("lightgbm", "pred_leaf"): "LightGBM `pred_leaf`",
    ("xgboost", "pred_contribs"): "XGBoost `pred_contribs`",
    ("catboost", "ShapValues"): "CatBoost `ShapValues`",
    ("shap", "shap_values"): "shap `TreeExplainer`",
    ("fasttreeshap", "shap_values"): "FastTreeSHAP",
    ("steps", "frame"): "scikit-learn's steps, `pred_contrib`",
    ("steps", "dict"): "the same, of a dict",
    ("treelite", "predict_leaf"): "treelite `gtil.predict_leaf`",
}
"""Peers' ways, for people."""


def per_row(figure: dict[str, Any]) -> float:
    """Return the seconds of a row."""
    return float(figure["seconds"] / figure["rows"])


def line(figures: dict[str, Any]) -> str:
    """A cell in a line, fastest first."""
    found = sorted(
        (per_row(figure), f"{peer} {way}")
        for peer, ways in figures.items()
        for way, figure in ways.items()
        if isinstance(figure, dict)
    )
    failed = [f"{peer}: {ways['failed']}" for peer, ways in figures.items() if "failed" in ways]
    return ", ".join([*(f"{name} {common.duration(seconds)}" for seconds, name in found), *failed])


def markdown(results: dict[str, Any]) -> str:
    """The whole report, without a title."""
    parts = [_about(results)]
    parts += [_races(results, method) for method in ("explain", "apply")]
    parts += [_threads(results), _cost(results)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _about(results: dict[str, Any]) -> str:
    packages: dict[str, str] = {}
    timed = {peer for cell in results["cells"].values() for peer in cell}
    for peer, found in results["versions"].items():
        if peer not in timed:
            continue
        # What FastTreeSHAP's environment holds is not what the other peers' does.
        for name, version in (found or {}).items():
            if name == peer or peer == "steps":
                packages.setdefault(name, version)
    named = ", ".join(f"{name} {version}" for name, version in packages.items())
    missing = [peer for peer, found in results["versions"].items() if not found]
    cpu = results["machine"]
    absent = f" Not installed: {', '.join(missing)}." if missing else ""
    return (
        f"{results['clock']} of a row on one thread, medians in turns, each peer in its own process and "
        "called with numpy rows (the pipeline with a frame or a dict); hbtvm's kernels are the defaults. "
        f"Peers whose call would take more than {results['most']:g} s got fewer rows, as many as are named. "
        "Differences are the largest of a cell over the largest absolute value. "
        f"{cpu['cpu']}, {cpu['cores']} cores, {', '.join(cpu['vectors'])}; {named}."
        f"{absent}"
    )


def _races(results: dict[str, Any], method: str) -> str:
    body = []
    for name, case in CASES.items():
        for rows in ROWS:
            cell = results["cells"].get(f"{name}/explain/{rows}")
            if case.method == method and cell is not None and "failed" not in cell["hbtvm"]:
                body += _rows(case.title, rows, cell)
    if not body:
        return ""
    if method == "apply":
        header = ["model", "rows", "hbtvm `apply`", "peer", "peer's time", "ratio", "difference"]
        return f"### Leaf ids\n\n{common.markdown(header, [[*one[:3], *one[4:]] for one in body])}"
    header = ["model", "rows", "kernel", "`explain`", "peer", "peer's time", "kernel's ratio", "difference"]
    return f"### Shapley values\n\n{common.markdown(header, body)}"


def _rows(title: str, rows: int, cell: dict[str, Any]) -> list[list[str]]:
    """Return a line of the table for each peer's way."""
    own = cell["hbtvm"]
    body = []
    for peer, ways in cell.items():
        if peer == "hbtvm":
            continue
        if "failed" in ways:
            body.append([title, f"{rows:,}", _time(_own(own, "")), "", peer, "fails", "", ""])
            continue
        for way, figure in ways.items():
            kernel = _own(own, way)
            method = own.get("dict" if way == "dict" else "explain")
            few = "" if figure["rows"] == rows else f" ({figure['rows']:,} rows)"
            body.append(
                [
                    title,
                    f"{rows:,}",
                    "" if way == "dict" else _time(kernel),
                    _time(method) if method else "",
                    NAMES[peer, way],
                    _time(figure) + few,
                    f"{per_row(figure) / per_row(kernel):.1f}×",
                    f"{figure['difference']:.1e}" if figure["difference"] else "0",
                ]
            )
    return body


def _own(own: dict[str, Any], way: str) -> dict[str, Any]:
    """Return hbtvm's figure to compare with a peer's way: of a dict, the method's; else the kernel's."""
    figure: dict[str, Any] = own[way if way == "dict" else next(iter(own))]
    return figure


def _time(figure: dict[str, Any]) -> str:
    return common.duration(per_row(figure))


def _threads(results: dict[str, Any]) -> str:
    body = []
    for name, case in CASES.items():
        for rows in ROWS:
            cell = results["cells"].get(f"{name}/threads/{rows}")
            if cell is not None:
                one, two = (cell[f"hbtvm, {n} threads"]["kernel"] for n in (1, 2))
                ratio = f"{per_row(one) / per_row(two):.2f}×"
                body.append([case.title, f"{rows:,}", _time(one), _time(two), ratio])
    if not body:
        return ""
    header = ["model", "rows", "one thread", "two threads", "ratio"]
    return f"### Two threads, wall time\n\n{common.markdown(header, body)}"


def _cost(results: dict[str, Any]) -> str:
    body = []
    for name, case in CASES.items():
        cells = [results["cells"].get(f"{name}/predict/{rows}") for rows in (1, 10_000)]
        if all(cells) and name in results["bytes"]:
            large, small = results["bytes"][name]
            times = [_time(cell[package]["predict"]) for cell in cells if cell for package in _PACKAGES]
            body.append([case.title, f"{small / 1e6:.2f} MB", f"{large / 1e6:.2f} MB", *times])
    if not body:
        return ""
    header = ["model", "package", "with reasons"]
    header += [f"`predict`, {rows}, {name}" for rows in ("1 row", "10,000 rows") for name in _PACKAGES]
    return f"### Packages and predictions with and without `explain=True`\n\n{common.markdown(header, body)}"


_PACKAGES = ("without", "with reasons")
