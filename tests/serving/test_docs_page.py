"""The page ``/docs`` in a browser: columns of each model, and a prediction by its button."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tornado.websocket import websocket_connect

from tests.browser import CHROMIUM, FLAGS, needs_browser
from tests.serving.conftest import Server
from tests.serving.models import CASES

PREDICT = """
(async () => {
  const until = async (ready) => { while (!ready()) await new Promise((go) => setTimeout(go, 20)); };
  await until(() => document.querySelector("button"));
  const section = [...document.querySelectorAll("section")].find(
    (each) => each.querySelector("h2").textContent === "pipeline");
  section.querySelector("button").click();
  const answer = section.querySelector("pre");
  await until(() => answer.textContent);
  const box = section.querySelector("textarea");
  box.value = '{"rows": [{"age": 1}]}';
  const good = answer.textContent;
  section.querySelector("button").click();
  await until(() => answer.textContent !== good);
  return JSON.stringify({
    models: [...document.querySelectorAll("h2")].map((each) => each.textContent),
    table: section.querySelector("table").innerText, good, bad: answer.textContent,
    wide: document.documentElement.scrollWidth, window: window.innerWidth});
})()
"""


def test_the_page_needs_no_other_host(server: Server) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=20)
    connection.request("GET", "/docs")
    response = connection.getresponse()
    html = response.read().decode()
    assert response.status == 200 and not re.findall(r"(?:https?:)?//\w[\w.]*\.\w+", html)
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; connect-src 'self'") and policy.count("'sha256-") == 2


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[str]:
    """Return the address at which a browser takes commands."""
    assert CHROMIUM is not None
    process = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if match := re.search(r"listening on ws://([^/]+)/", line):
                yield match[1]
                break
        else:
            pytest.fail("chromium did not start")
    finally:
        process.kill()
        process.communicate()


async def looked_at(browser: str, address: str, width: int) -> dict[str, Any]:
    """Open the page, press the button, and return what the page shows."""
    connection = http.client.HTTPConnection(browser, timeout=60)
    connection.request("PUT", f"/json/new?http://{address}/docs")
    target = json.loads(connection.getresponse().read())
    socket = await websocket_connect(target["webSocketDebuggerUrl"], max_message_size=1 << 24)

    async def command(method: str, **parameters: Any) -> Any:
        await socket.write_message(json.dumps({"id": 1, "method": method, "params": parameters}))
        while True:
            message = json.loads(await socket.read_message())
            if message.get("id") == 1:
                return message.get("result", message)

    await command(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
    )
    # Until the page has replaced the empty document of a new target.
    loaded = f"location.host === {json.dumps(address)} && document.readyState === 'complete'"
    while (await command("Runtime.evaluate", expression=loaded)).get("result", {}).get("value") is not True:
        await asyncio.sleep(0.05)
    result = await command("Runtime.evaluate", expression=PREDICT, awaitPromise=True)
    socket.close()
    found: dict[str, Any] = json.loads(result["result"]["value"])
    return found


@needs_browser
def test_predictions_on_the_page(server: Server, browser: str) -> None:
    for width in (1280, 400):
        found = asyncio.run(asyncio.wait_for(looked_at(browser, server.address, width), 120))
        assert found["models"] == list(CASES)
        assert re.findall(r"^\w+", found["table"], re.MULTILINE) == ["column", "age", "job", "pay"]
        assert found["good"].startswith("200,") and '"predict_proba"' in found["good"]
        assert found["bad"].startswith("400,") and "'job' is missing" in found["bad"]
        assert found["wide"] <= found["window"] == width, "the page scrolls sideways"
