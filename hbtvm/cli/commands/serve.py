"""``hbtvm serve``: serve compiled models over HTTP."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli import files
from hbtvm.cli.arguments import (
    UsageError,
    add_allowed_signers,
    examples,
    paragraphs,
    seconds,
    size,
    trust_of,
    whole,
)
from hbtvm.cli.show import print_line
from hbtvm.runtime.package.trust import Trust

if TYPE_CHECKING:
    from hbtvm.serving.processes.peers import Peers
    from hbtvm.serving.processes.supervisor import Supervisor

_DESCRIPTION = """
Serve compiled models over HTTP. Neither the training library nor a compiler is needed.

A package is machine code that runs with your rights: serve only packages that you trust, and pin them with
--sha256 or --allowed-signers, which also apply to files that replace a package.

A model's name is its file's name without .tar, or the part before "=", as in fraud=build/model.tar.

POST /v2/models/NAME/predict takes rows in plain JSON, {"rows": [{"age": 41, "plan": "basic"}]}, and answers
with an object for each row: its prediction and, if the model has them, probabilities by class. Models without
column names take lists, models of texts take texts, and recursive models take structures. The page /docs
shows the columns of each model, and /openapi.json describes them to programs.

POST /v2/models/NAME/infer predicts by the Open Inference Protocol (KServe's version 2): clients of KServe,
Triton and MLServer work unchanged. A numeric model takes a tensor of shape [rows, columns]; any model with
column names, and every pipeline with texts, takes a tensor for each column by name. Values are in the
request's JSON, or behind it as bytes. GET /v2/models/NAME lists the model's inputs and outputs: predict and,
if the model has them, predict_proba, decision_function and so on.

GET /v2/health/live and /v2/health/ready are for probes, GET /metrics for Prometheus.

A changed package is loaded while the old one still answers, and then replaces it; if it can't be loaded, the
old one stays. SIGHUP reloads at once, and so does POST /v2/repository/models/NAME/load with
--allow-model-control. SIGTERM and Ctrl-C stop the service after the open requests are answered.

--processes starts several processes behind the port, which use several processors for small requests. A
supervisor replaces processes that end, and passes signals on. Each process loads all models, and limits hold
for each process.

The service has neither users nor TLS: put it behind a proxy that has both. It answers requests whose Host
header names localhost, the address that it listens at, or an --allowed-host.
"""

_TOKEN = "HBTVM_CONTROL_TOKEN"  # the environment variable with the token for model control
_TOKEN_LENGTH = 16  # fewest characters of a token


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
            ("hbtvm serve model.tar --threads 1 --processes 4", "for many requests of few rows"),
        ),
    )
    parser.add_argument("packages", metavar="[NAME=]MODEL.tar", nargs="+", help="packages to serve")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="HOST", help="address to listen at (default: %(default)s)"
    )
    _add_limits(parser)
    _add_access(parser)
    parser.add_argument("--device", metavar="DEVICE", help="GPU for packages for GPUs, such as cuda:1")
    group = parser.add_argument_group("trust", "a package is machine code, which does what its author wants")
    group.add_argument(
        "--sha256",
        metavar="[NAME=]HEX",
        action="append",
        default=[],
        help="required hash of a package's file; repeat with NAME= for several models",
    )
    add_allowed_signers(group)
    parser.add_argument("--access-log", action="store_true", help="log each request")
    parser.set_defaults(run=run)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the options that are numbers."""
    parse: Callable[[str], float]
    for name, parse, metavar, default, text in (
        ("port", whole(0), "N", 8080, "port; 0 for any free port"),
        ("processes", whole(1), "N", 1, "processes behind the port"),
        ("threads", whole(1), "N", None, "threads of a request (default: as many as it was tuned for)"),
        ("workers", whole(1), "N", 2, "requests of many rows computed in parallel"),
        ("max-waiting", whole(1), "N", 64, "open requests of many rows; more are refused with 429"),
        ("max-request", size, "SIZE", "16M", "bytes of a request; larger ones are refused with 413"),
        (
            "max-memory",
            size,
            "SIZE",
            "256M",
            "bytes of all open requests and their answers; more are refused with 429, a single request that "
            "needs more with 413",
        ),
        (
            "max-connections",
            whole(1),
            "N",
            1000,
            "most connections, bounded by the limit of open files; a further one closes the oldest idle "
            "connection",
        ),
        ("header-timeout", seconds, "SECONDS", "10", "time for a request's head to arrive"),
        ("body-timeout", seconds, "SECONDS", "30", "time for a request's body to arrive"),
        ("idle-timeout", seconds, "SECONDS", "60", "time that a connection may wait for its next request"),
        ("write-timeout", seconds, "SECONDS", "30", "time for a client to read the next part of an answer"),
        ("watch", float, "SECONDS", 2.0, "interval of looking for changed packages; 0 for never"),
        ("grace", whole(1), "SECONDS", 30, "time for open requests when the service stops"),
    ):
        usual = "" if default is None else " (default: %(default)s)"
        parser.add_argument(f"--{name}", type=parse, default=default, metavar=metavar, help=text + usual)


def _add_access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another Host header of this service, such as the name of a proxy or a container; '*' for any "
        "(can be repeated)",
    )
    parser.add_argument(
        "--allow-model-control",
        action="store_true",
        help="load and unload models over HTTP, for clients that send the token of --control-token-file, or "
        f"of the variable {_TOKEN}, as Authorization: Bearer TOKEN",
    )
    parser.add_argument(
        "--control-token-file",
        metavar="FILE",
        help=f"file with the token of at least {_TOKEN_LENGTH} characters",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    token = _token(arguments)
    paths = _named(arguments.packages)
    if arguments.port > 65535:
        raise UsageError(f"--port {arguments.port}: expected at most 65535")
    if arguments.watch < 0:
        raise UsageError(f"--watch {arguments.watch:g}: expected at least 0")

    trust = _trust(arguments, paths)
    from hbtvm.serving import startup

    startup.log_to_stderr(arguments.access_log, arguments.processes)
    if arguments.processes == 1:
        _serve(arguments, paths, trust, token)
        return 0

    from hbtvm.serving.processes.peers import Peers, board_of
    from hbtvm.serving.processes.supervisor import Supervisor

    listening = startup.listen(arguments.host, arguments.port)
    board = board_of(arguments.processes, paths)
    supervisor = Supervisor(arguments.processes, listening, arguments.grace)
    number = supervisor.run()
    if number is None:
        return supervisor.status
    peers = Peers(board, number, arguments.processes)
    _serve(arguments, paths, trust, token, listening, peers, supervisor)
    return 0


def _serve(
    arguments: argparse.Namespace,
    paths: Mapping[str, Path],
    trust: Mapping[str, Trust],
    token: str | None,
    listening: socket.socket | None = None,
    peers: Peers | None = None,
    supervisor: Supervisor | None = None,
) -> None:
    """Load the models and serve them until a signal.

    `listening`, `peers`, `supervisor`: of one of several processes.
    """
    # Slow imports come after the checks of the command line, and after the fork of processes.
    from hbtvm.serving import server, startup
    from hbtvm.serving.access import Access
    from hbtvm.serving.app import Service
    from hbtvm.serving.bodies import Limits
    from hbtvm.serving.http.connections import Timeouts
    from hbtvm.serving.metrics import Metrics
    from hbtvm.serving.repository import Repository

    metrics = Metrics()
    version_of = None if peers is None else peers.version
    repository = Repository(paths, metrics, arguments.threads, arguments.device, trust, version_of)
    if peers is not None:
        peers.join(metrics, repository.change)
    limits = Limits(
        body=min(arguments.max_request, arguments.max_memory),
        bodies=arguments.max_memory,
        waiting=arguments.max_waiting,
        seconds=arguments.body_timeout,
    )
    access = Access(arguments.host, arguments.allowed_host, token)
    service = Service(repository, metrics, limits, arguments.workers, access, peers)
    connections = server.most_connections(arguments.max_connections)
    with server.Signals(supervised=supervisor is not None) as signals:
        for name in paths:
            repository.load(name)
        if peers is not None:
            peers.catch_up()
        signals.listening = True
        if listening is None:
            listening = startup.listen(arguments.host, arguments.port)
        host, port = listening.getsockname()[:2]
        at = f"http://{f'[{host}]' if ':' in host else host}:{port}"

        def started() -> None:
            if supervisor is None or supervisor.first:
                for name in paths:
                    print_line(f"{at}/v2/models/{name}  {repository.served[name].model!r}")
                sys.stdout.flush()  # a pipe or a container's log gets it now
            if supervisor is not None:
                supervisor.ready()

        server.run(
            service,
            listening,
            signals,
            timeouts=Timeouts(arguments.header_timeout, arguments.idle_timeout, arguments.write_timeout),
            connections=connections,
            watch=arguments.watch or None,
            grace=arguments.grace,
            access_log=arguments.access_log,
            started=started,
        )


def _trust(arguments: argparse.Namespace, paths: Mapping[str, Path]) -> dict[str, Trust]:
    """Return the requirements of packages, by model."""
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


def _token(arguments: argparse.Namespace) -> str | None:
    """Return the token for model control; None without it."""
    path = arguments.control_token_file
    if not arguments.allow_model_control:
        if path is not None:
            raise UsageError("--control-token-file: expected --allow-model-control, too")
        return None
    if path is None:
        where, token = _TOKEN, os.environ.get(_TOKEN, "")
        if not token:
            raise UsageError(
                f"--allow-model-control: expected a token, by --control-token-file or in {_TOKEN}"
            )
    else:
        where, token = path, files.existing(path, "a token").read_text(errors="replace")
    token = token.strip()
    if len(token) < _TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{where}: expected a token of at least {_TOKEN_LENGTH} characters of ASCII, without spaces"
        )
    return token


def _named(arguments: list[str]) -> dict[str, Path]:
    """Return the package of each model."""
    paths: dict[str, Path] = {}
    for text in arguments:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = Path(text).name.removesuffix(".tar"), text
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise UsageError(
                f"{text}: a model's name has letters, digits, '.', '_' and '-' only; give it one: NAME={path}"
            )
        if name in paths:
            raise UsageError(f"{text}: there are two models {name}; give them names: NAME={path}")
        paths[name] = files.existing(path, "a package")
    return paths
