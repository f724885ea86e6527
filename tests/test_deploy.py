"""The folder `deploy`: the image's root file system serves a model, and the manifests fit the command."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hbtvm.cli.main import make_parser
from tests.serving.models import CASES, frame

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
MOST = 120_000_000  # bytes of the image


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("image") / "root"
    subprocess.run(
        [sys.executable, str(DEPLOY / "rootfs.py"), str(folder)],
        env={**os.environ, "PYTHONPATH": str(DEPLOY.parent)},
        check=True,
        timeout=240,
    )
    yield folder
    shutil.rmtree(folder)


def isolated(root: Path) -> list[str]:
    """Return the beginning of a command that runs as the image's first process, as its user."""
    new = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc"]
    command = [*new, "chroot", "--userspec=65532:65532", str(root)]
    try:
        done = subprocess.run([*command, "/usr/bin/python3", "-c", ""], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("this machine lacks unshare and chroot")
    if done.returncode and "not permitted" in done.stderr:
        pytest.skip("this user may not run chroot")
    assert not done.returncode, done.stderr
    return command


def test_the_image_serves_a_model(root: Path) -> None:
    size = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())
    assert size < MOST, f"{size / 1e6:.0f} MB"
    CASES["pipeline"].write(root / "models" / "churn.tar")
    (line,) = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if "ENTRYPOINT" in line]
    entry = json.loads(line.removeprefix("ENTRYPOINT "))
    # The network is that of this machine, so that the port must be free.
    command = [*entry[: entry.index("--host")], "--port", "0", "--processes", "2", "/models/churn.tar"]
    process = subprocess.Popen(
        [*isolated(root), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        started = process.stdout.readline()
        match = re.match(r"http://([^/]+)/v2/models/churn ", started)
        assert match, started + process.stderr.read()
        rows = json.loads(frame().to_json(orient="records"))
        connection = http.client.HTTPConnection(match[1], timeout=30)
        connection.request("POST", "/v2/models/churn/predict", json.dumps({"rows": rows}))
        response = connection.getresponse()
        predictions = json.loads(response.read())["predictions"]
        assert response.status == 200
        expected = CASES["pipeline"].expected("predict").tolist()
        assert [prediction["predict"] for prediction in predictions] == expected
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)  # `unshare` itself ignores it
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def served(arguments: list[str]) -> Any:
    """Parse the arguments of a container, behind those of the image."""
    (line,) = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if "ENTRYPOINT" in line]
    entry = json.loads(line.removeprefix("ENTRYPOINT "))
    return make_parser().parse_args([*entry[entry.index("serve") :], *arguments])


def test_kubernetes() -> None:
    deployment, service = manifests("kubernetes.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = served(container["args"])
    name, _, path = options.packages[0].partition("=")
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert Path(path).parent == Path(mounts["models"]) and name == service["metadata"]["name"]
    assert container["ports"][0]["containerPort"] == options.port == 8080 and options.host == "0.0.0.0"
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert {name, f"{name}.default.svc"} < set(options.allowed_host)
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > options.grace
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in ("/v2/health/ready", "/v2/health/live")


def test_kserve() -> None:
    runtime, service = manifests("kserve.yaml")
    assert (runtime["kind"], service["kind"]) == ("ServingRuntime", "InferenceService")
    (container,) = runtime["spec"]["containers"]
    options = served([argument.replace("{{.Name}}", "churn") for argument in container["args"]])
    assert options.packages == ["churn=/mnt/models/model.tar"] and options.allowed_host == ["*"]
    assert container["ports"][0]["containerPort"] == options.port
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] in [one["name"] for one in runtime["spec"]["supportedModelFormats"]]
    assert runtime["spec"]["protocolVersions"] == [model["protocolVersion"]] == ["v2"]
