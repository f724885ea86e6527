"""Pages in a headless browser: what they show at a width, and what the browser complains about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="this machine lacks chromium")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
    "--remote-debugging-port=0",
)  # fmt: skip

# Each page is shown in a frame of the width, one after the other.
_SCRIPT = """
<body><script>
const jobs = JOBS, results = [];
async function look([page, width]) {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:900px;border:0`;
  frame.src = page;
  await new Promise(done => { frame.onload = done; document.body.append(frame); });
  const inner = frame.contentDocument, images = [...inner.images];
  images.forEach(image => { image.loading = "eager"; });
  await Promise.all(images.map(image => image.decode().catch(() => null)));
  const seen = element => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0;
  };
  const drawn = [...inner.querySelectorAll("article img, figure svg")];
  results.push({page, width, wide: inner.documentElement.scrollWidth,
    hidden: drawn.filter(it => !seen(it) || it.naturalWidth === 0).length, pictures: drawn.length,
    text: inner.body.innerText});
  frame.remove();
}
(async () => {
  for (const job of jobs) await look(job);
  await fetch("/results", {method: "POST", body: JSON.stringify(results)});
})();
</script></body>
"""


@dataclass(frozen=True)
class Look:
    """A page as a browser of a width shows it."""

    page: str
    width: int
    wide: int  # pixels that its content takes across
    pictures: int
    hidden: int  # pictures that could not be loaded or have no size
    text: str


class _Server(ThreadingHTTPServer):
    """Serves a folder, and receives what the browser saw."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.results: Queue[bytes] = Queue()


class _Handler(SimpleHTTPRequestHandler):
    def do_POST(self) -> None:
        """Keep the results."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()
        assert isinstance(self.server, _Server)
        self.server.results.put(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def look(folder: Path, pages: Iterable[str], widths: Iterable[int]) -> tuple[list[Look], list[str]]:
    """Show pages of a folder at each width; returns how they look, and the lines of the console."""
    assert CHROMIUM is not None
    widths = list(widths)
    jobs = [(f"/{page}", width) for page in pages for width in widths]
    entry = folder / "_look.html"
    entry.write_text(_SCRIPT.replace("JOBS", json.dumps(jobs)))
    server = _Server(folder)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            log = Path(profile) / "stderr"
            url = f"http://127.0.0.1:{server.server_port}/_look.html"
            command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}/user", "--window-size=1400,1000", url]
            with log.open("w") as errors:
                browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
                try:
                    seen = json.loads(server.results.get(timeout=200))
                finally:
                    browser.terminate()
                    browser.wait()
            console = re.findall(r"CONSOLE[^\n]*", log.read_text(errors="replace"))
    finally:
        server.shutdown()
        server.server_close()
        entry.unlink()
    return [Look(**{**item, "page": item["page"][1:]}) for item in seen], console
