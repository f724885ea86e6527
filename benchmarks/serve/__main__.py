"""The HTTP service under load: ``python -m benchmarks.serve``.

Compares requests per second and latencies of ``hbtvm serve`` with a constant answer of its HTTP stack
(an ASGI function, and a Starlette route, under uvicorn) and with MLServer, which serves the same LightGBM
model of 500 trees. Each server is one process on one core, ``wrk`` runs on another; medians of rounds in
turns. MLServer's environment is made at the first run. ``--soak`` and ``--reloads`` hold hbtvm's service
under load instead; ``--probe`` times health probes alone, and while clients send 16 kB, 58 kB or 1 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

import hbtvm
from benchmarks.common import duration, higgs_like, lightgbm_model, locked, markdown
from benchmarks.serve import endurance
from benchmarks.serve.load import MISSING, Load, Measured, Payload
from benchmarks.serve.servers import MODEL, SERVERS, TITLES, Server, made


def main() -> int:
    """Run the comparison; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build/serve"), help="folder of the results"
    )
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS), metavar="NAME",
                        help=", ".join(SERVERS))  # fmt: skip
    parser.add_argument("--rounds", type=int, default=7, help="turns of each server")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="memory under load for so long")
    parser.add_argument("--reloads", type=int, metavar="N", help="so many reloads under load")
    parser.add_argument("--probe", type=float, metavar="SECONDS", help="times of probes for so long")
    parser.add_argument("--environments", type=Path, default=Path(".cache/environments"), metavar="FOLDER",
                        help="folder with MLServer's environment, which is made there")  # fmt: skip
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock this file while timing, as flock(1) does"
    )
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        print(MISSING, file=sys.stderr)
        return 1
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("two cores are needed, one for the server and one for the load", file=sys.stderr)
        return 1
    given.output.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="serve-") as folder,
        open(given.output / "servers.log", "w") as log,
    ):
        payloads = _prepare(Path(folder), given.trees)
        with locked(given.lock):
            if given.probe is not None:
                text = _probe(given, Path(folder), cores, log)
            elif given.soak is not None or given.reloads is not None:
                text = _endure(given, Path(folder), payloads[0], cores, log)
            else:
                text = _compare(given, Path(folder), payloads, cores, log)
    (given.output / "serve.md").write_text(text)
    print(text)
    return 0


def _prepare(folder: Path, trees: int) -> list[Payload]:
    """Train and compile the model; return the requests."""
    booster = lightgbm_model(trees=trees)
    booster.save_model(folder / f"{MODEL}.txt")
    model = hbtvm.compile(booster, threads=1)
    model.save(folder / f"{MODEL}.tar")
    shutil.copyfile(folder / f"{MODEL}.tar", folder / "first.tar")
    X = higgs_like(100, 28, seed=1)[0]
    return [_json(X[:1]), _json(X), _binary(X)]


def _json(rows: np.ndarray) -> Payload:
    tensor = {
        "name": "input",
        "shape": list(rows.shape),
        "datatype": "FP32",
        "data": rows.reshape(-1).tolist(),
    }
    body = json.dumps({"inputs": [tensor]}).encode()
    return Payload(f"{len(rows)} rows, JSON" if len(rows) > 1 else "1 row, JSON", body,
                   {"content-type": "application/json"})  # fmt: skip


def _binary(rows: np.ndarray) -> Payload:
    tensor = {"name": "input", "shape": list(rows.shape), "datatype": "FP32",
              "parameters": {"binary_data_size": rows.nbytes}}  # fmt: skip
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    return Payload(f"{len(rows)} rows, binary", head + rows.tobytes(), headers)


def _compare(
    given: argparse.Namespace, folder: Path, payloads: list[Payload], cores: list[int], log: object
) -> str:
    sections = []
    results = {}
    for payload in payloads:
        script = folder / "post.lua"
        payload.write(script)
        found: dict[str, list[Measured]] = {}
        servers = _started(given, folder, payload, cores, log)
        try:
            for server in servers:
                Load(script, server.url, given.connections, 1, cores[1]).result()
            for _ in range(given.rounds):
                for server in servers:
                    load = Load(script, server.url, given.connections, given.seconds, cores[1])
                    found.setdefault(server.name, []).append(load.result())
        finally:
            for server in servers:
                server.stop()
        results[payload.name] = {name: [vars(one) for one in all_of] for name, all_of in found.items()}
        sections.append(
            f"### {payload.name}, {len(payload.body):,} bytes\n\n{_table(found, given.servers)}\n"
        )
        print(sections[-1], file=sys.stderr, flush=True)
    (given.output / "results.json").write_text(json.dumps(results, indent=1))
    head = (
        "Requests per second and latencies of servers of one process on one core, by wrk on another core "
        f"with {given.connections} connections; LightGBM, {given.trees} trees, 28 columns; "
        f"medians of {given.rounds} rounds of {given.seconds:g} s, in turns.\n"
    )
    return "\n".join([head, *sections])


def _started(
    given: argparse.Namespace, folder: Path, payload: Payload, cores: list[int], log: object
) -> list[Server]:
    """All servers, running; the constant ones answer as hbtvm does."""
    servers: list[Server] = []
    try:
        answers = {}
        # hbtvm first, since its answer is the constant one.
        for name in sorted({*given.servers, "hbtvm"}, key=lambda one: one != "hbtvm"):
            server = made(name, folder, cores[0], given.environments)
            servers.append(server)
            try:
                server.start(log, payload)  # type: ignore[arg-type]
            except RuntimeError as error:
                print(f"{payload.name}: {error}", file=sys.stderr)
                servers.pop()
                continue
            answers[name] = server.ask(payload)
            if name == "hbtvm":
                (folder / "answer").write_bytes(answers[name])
        if "mlserver" in answers:
            _check(payload, answers)
        kept = [one for one in servers if one.name in given.servers]
        for server in servers:
            if server not in kept:
                server.stop()
        return sorted(kept, key=lambda one: SERVERS.index(one.name))
    except BaseException:
        for server in servers:
            server.stop()
        raise


def _check(payload: Payload, answers: dict[str, bytes]) -> None:
    """Both models answer the same."""
    if b"binary" in payload.name.encode():
        return
    found = {
        name: np.ravel(json.loads(answers[name])["outputs"][0]["data"]) for name in ("hbtvm", "mlserver")
    }
    np.testing.assert_allclose(found["hbtvm"], found["mlserver"], rtol=1e-5)


def _table(found: dict[str, list[Measured]], servers: list[str]) -> str:
    rates = {name: statistics.median(one.rate for one in all_of) for name, all_of in found.items()}
    rows = []
    for name, all_of in found.items():
        failed = sum(one.failed for one in all_of)
        middle = [statistics.median(getattr(one, field) for one in all_of) for field in ("p50", "p99")]
        others = ("starlette", "mlserver")
        ratios = [f"{rates[name] / rates[one]:.2f}x" if one in rates else "" for one in others]
        rate = f"{rates[name]:,.0f}" + (f" ({failed:,} failed)" if failed else "")
        rows.append([TITLES[name], rate, *map(duration, middle), *ratios])
    rows += [[TITLES[name], "fails", *[""] * 4] for name in servers if name not in found]
    ratios = ["over Starlette", "over MLServer"]
    return markdown(["server", "requests/s", "p50", "p99", *ratios], rows, second=ratios)


def _endure(given: argparse.Namespace, folder: Path, payload: Payload, cores: list[int], log: object) -> str:
    script = folder / "post.lua"
    payload.write(script)
    told = []
    server = made("hbtvm", folder, cores[0], given.environments)
    server.start(log, payload)  # type: ignore[arg-type]
    try:
        if given.soak is not None:
            told.append(endurance.soak(server, script, given.soak, cores[1], given.connections).told())
        if given.reloads is not None:
            other = hbtvm.compile(lightgbm_model(trees=given.trees, seed=1), threads=1)
            other.save(folder / "second.tar")
            packages = (folder / "second.tar", folder / "first.tar")
            told.append(endurance.reload(server, script, packages, given.reloads, cores[1]).told())
    finally:
        server.stop()
    return "\n\n".join(told) + "\n"


def _probe(given: argparse.Namespace, folder: Path, cores: list[int], log: object) -> str:
    """Probes beside requests of 16 kB and 58 kB, which the event loop answers, and of 1 MB."""
    rows = []
    payloads = [(write, higgs_like(count, 28, seed=1)[0])
                for write, count in ((_binary, 146), (_json, 100), (_binary, 10_000))]  # fmt: skip
    for write, X in payloads:
        payload = write(X)
        script = folder / "post.lua"
        payload.write(script)
        server = made("hbtvm", folder, cores[0], given.environments)
        server.start(log, payload)  # type: ignore[arg-type]
        try:
            alone = endurance.probes(server, given.probe)
            load = Load(script, server.url, given.connections, 24 * 3600, cores[1])
            try:
                beside = endurance.probes(server, given.probe)
            finally:
                load.stop()
            failed = load.result().failed
        finally:
            server.stop()
        for name, share in (("median", 0.5), ("99 %", 0.99)):
            times = [sorted(all_of)[int(share * (len(all_of) - 1))] for all_of in (alone, beside)]
            rows.append([f"{payload.name}, {failed:,} failed", name, *map(duration, times),
                         f"{times[1] / times[0]:.1f}x"])  # fmt: skip
    head = f"Health probes beside {given.connections} clients, and alone.\n\n"
    return head + markdown(["requests", "of the probes", "alone", "beside them", "ratio"], rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
