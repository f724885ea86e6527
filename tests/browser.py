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
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="this machine lacks chromium")

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
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
  document.body.innerText = "results:" + JSON.stringify(results) + ":end";
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


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def look(folder: Path, pages: Iterable[str], widths: Iterable[int]) -> tuple[list[Look], list[str]]:
    """Show pages of a folder at each width; returns how they look, and the lines of the console."""
    assert CHROMIUM is not None
    jobs = [(f"/{page}", width) for page in pages for width in widths]
    entry = folder / "_look.html"
    entry.write_text(_SCRIPT.replace("JOBS", json.dumps(jobs)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as profile:
            url = f"http://127.0.0.1:{server.server_port}/_look.html"
            command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "--window-size=1400,1000"]
            done = subprocess.run(
                [*command, "--virtual-time-budget=600000", "--dump-dom", url],
                capture_output=True,
                text=True,
                timeout=250,
            )
    finally:
        server.shutdown()
        server.server_close()
        entry.unlink()
    match = re.search("results:(.*):end", done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    looks = [Look(**item) for item in json.loads(unescape(match[1]))]
    return looks, re.findall(r"CONSOLE[^\n]*", done.stderr)
