"""``hbtvm serve``: compiled models behind HTTP, by the Open Inference Protocol."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError, add_allowed_signers, examples, paragraphs, size, trust_of, whole
from hbtvm.cli.show import print_line
from hbtvm.runtime.trust import Trust

_DESCRIPTION = """
Serve compiled models over HTTP, by the Open Inference Protocol (KServe's version 2): clients of KServe,
Triton and MLServer work unchanged. Neither the training library nor a compiler is needed.

A package is machine code that runs with your rights: serve only packages that you trust, and pin them with
--sha256 or --allowed-signers, which hold for each file that replaces one, too.

A model is known by its file's name without .tar, or by what stands before "=", as in fraud=build/model.tar.

POST /v2/models/NAME/infer predicts. A model of numbers takes one tensor of shape [rows, columns], or a tensor
for each column by its name; a pipeline with texts, or any model with column names, the latter. Values are in
the request's JSON, or behind it as bytes. GET /v2/models/NAME tells its inputs and outputs: predict, and
predict_proba, decision_function and the like, where the model has them.

GET /v2/health/live and /v2/health/ready are for probes, GET /metrics for Prometheus.

When a package's file changes, it is loaded while the old one still answers, and takes its place; if it can't
be loaded, the old one stays. SIGHUP and POST /v2/repository/models/NAME/load do the same at once. SIGTERM and
Ctrl-C end the service when the requests at hand are answered.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "serve",
        help="answer requests over HTTP",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm serve model.tar", "at http://127.0.0.1:8080/v2/models/model"),
            (
                "hbtvm serve fraud=a.tar churn=b.tar --host 0.0.0.0 --port 80",
                "two models, for other machines",
            ),
            ("hbtvm serve model.tar --threads 4 --max-request 64M", "for requests of many rows"),
        ),
    )
    parser.add_argument("packages", metavar="[NAME=]MODEL.tar", nargs="+", help="packages to serve")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="HOST", help="address to listen at (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=whole(0),
        default=8080,
        metavar="N",
        help="port; 0 for any that is free (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=whole(1),
        metavar="N",
        help="threads for one request (default: as many as it was tuned for)",
    )
    parser.add_argument(
        "--workers",
        type=whole(1),
        default=2,
        metavar="N",
        help="requests of many rows that are computed at the same time (default: %(default)s)",
    )
    parser.add_argument(
        "--max-waiting",
        type=whole(1),
        default=64,
        metavar="N",
        help="requests of many rows at hand; more are refused with 429 (default: %(default)s)",
    )
    parser.add_argument(
        "--max-request",
        type=size,
        default=16 << 20,
        metavar="SIZE",
        help="bytes of a request, such as 64M; more are refused with 413 (default: 16M)",
    )
    parser.add_argument(
        "--max-memory",
        type=size,
        default=256 << 20,
        metavar="SIZE",
        help="bytes of all requests at hand; more are refused with 429 (default: 256M)",
    )
    parser.add_argument(
        "--watch",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="how often to look for changed packages; 0 for never (default: %(default)s)",
    )
    parser.add_argument(
        "--grace",
        type=whole(1),
        default=30,
        metavar="SECONDS",
        help="how long requests have to end when the service stops (default: %(default)s)",
    )
    parser.add_argument(
        "--device", metavar="DEVICE", help="GPU of packages that are for GPUs, such as cuda:1"
    )
    group = parser.add_argument_group("trust", "a package is machine code, which does what its author wants")
    group.add_argument(
        "--sha256",
        metavar="[NAME=]HEX",
        action="append",
        default=[],
        help="the hash that a package's file has to have; for several models with NAME=, once for each",
    )
    add_allowed_signers(group)
    parser.add_argument("--access-log", action="store_true", help="log each request")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    paths = _named(arguments.packages)
    if arguments.port > 65535:
        raise UsageError(f"--port {arguments.port}: expected at most 65535")
    if arguments.watch < 0:
        raise UsageError(f"--watch {arguments.watch:g}: expected at least 0")

    trust = _trust(arguments, paths)
    # What takes long to import is imported when the command line is known to be right.
    from hbtvm.serving import server
    from hbtvm.serving.app import Service
    from hbtvm.serving.bodies import Limits
    from hbtvm.serving.metrics import Metrics
    from hbtvm.serving.repository import Repository

    metrics = Metrics()
    repository = Repository(paths, metrics, arguments.threads, arguments.device, trust)
    for name in paths:
        repository.load(name)
    limits = Limits(
        body=arguments.max_request,
        bodies=max(arguments.max_memory, arguments.max_request),
        waiting=arguments.max_waiting,
    )
    service = Service(repository, metrics, limits, arguments.workers)
    listening = server.listen(arguments.host, arguments.port)
    server.log_to_stderr(arguments.access_log)
    host, port = listening.getsockname()[:2]
    at = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def started() -> None:
        for name in paths:
            print_line(f"{at}/v2/models/{name}  {repository.served[name].model!r}")

    server.run(
        service,
        listening,
        watch=arguments.watch or None,
        grace=arguments.grace,
        access_log=arguments.access_log,
        started=started,
    )
    return 0


def _trust(arguments: argparse.Namespace, paths: Mapping[str, Path]) -> dict[str, Trust]:
    """What the packages have to be, by the names of their models."""
    hashes: dict[str, str] = {}
    for text in arguments.sha256:
        name, equals, digest = text.rpartition("=")
        if not equals and len(paths) == 1:
            (name,) = paths
        if name not in paths:
            raise UsageError(f"--sha256 {text}: name a model, NAME=HEX: {', '.join(paths)}")
        if name in hashes:
            raise UsageError(f"--sha256 {text}: there are two hashes of {name}")
        hashes[name] = digest
    return {name: trust_of(hashes.get(name), arguments.allowed_signers) for name in paths}


def _named(given: list[str]) -> dict[str, Path]:
    """Packages by the names of their models."""
    paths: dict[str, Path] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not equals:
            name, path = Path(one).name.removesuffix(".tar"), one
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise UsageError(
                f"{one}: a model's name has letters, digits, '.', '_' and '-' only; give it one: NAME={path}"
            )
        if name in paths:
            raise UsageError(f"{one}: there are two models {name}; give them names: NAME={path}")
        paths[name] = files.existing(path, "a package")
    return paths
