"""A page in headless Chromium: what it asks the network for, what it says, and how wide it is at given widths."""

from __future__ import annotations

import html
import json
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HOST = "page.test"
OWN = ("google.com", "googleapis.com", "gvt1.com", "gstatic.com")
"""Hosts that the browser itself calls, whatever it shows."""

FRAMES = """<!DOCTYPE html><meta charset="utf-8"><body>
{frames}
<pre id="told"></pre>
<script>
const told = {{}};
function inspect() {{
  for (const frame of document.querySelectorAll("iframe")) {{
    const page = frame.contentDocument, window_ = frame.contentWindow, found = {{selected: {{}}}};
    found.scroll = page.documentElement.scrollWidth;
    found.client = page.documentElement.clientWidth;
    found.text = page.body.innerText;
    found.cut = [];
    for (const element of page.querySelectorAll("body *")) {{
      const box = element.getBoundingClientRect();
      if (box.width && (box.left < -1 || box.right > found.client + 1) && !element.closest(".scroll, pre, details"))
        found.cut.push(element.tagName + "." + element.className);
    }}
    for (const selector of {selectors}) {{
      found.selected[selector] = Array.from(page.querySelectorAll(selector)).map(element => {{
        const box = element.getBoundingClientRect();
        return {{text: element.textContent, left: box.left, right: box.right, height: box.height,
                 size: parseFloat(window_.getComputedStyle(element).fontSize),
                 attributes: Object.fromEntries(Array.from(element.attributes).map(a => [a.name, a.value]))}};
      }});
    }}
    told[frame.width] = found;
  }}
  document.getElementById("told").textContent = JSON.stringify(told);
}}
window.addEventListener("load", inspect);
</script>
"""


@dataclass(frozen=True)
class Shown:
    """What the browser made of a page."""

    asked: list[str]
    """URLs that were asked for, but the page itself, the frame round it and what the browser asks on its own."""
    at: dict[int, dict[str, Any]]
    """Width in pixels → scroll (width of the content), client, text, cut (elements beyond the edges), selected."""


def show(page: Path, folder: Path, widths: Sequence[int], selectors: Sequence[str] = ()) -> Shown:
    """Open a page in frames of these widths, every request of the browser going to us as its proxy."""
    frames = "\n".join(
        f'<iframe src="/page.html" width="{width}" height="900" frameborder="0"></iframe>' for width in widths
    )
    outer = FRAMES.format(frames=frames, selectors=json.dumps(list(selectors)))
    with _proxy({"/frames.html": outer.encode(), "/page.html": page.read_bytes()}) as (port, log):
        done = subprocess.run(
            [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={folder / 'profile'}", "--window-size=1600,1000", "--virtual-time-budget=5000",
                f"--proxy-server=http://127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>",
                "--dump-dom", f"http://{HOST}/frames.html",
            ],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    found = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.S)
    assert found is not None, done.stderr[-2000:]
    told = json.loads(html.unescape(found[1]))
    ours = {f"http://{HOST}/frames.html", f"http://{HOST}/page.html"}
    assert ours <= set(log), log
    asked = [url for url in log if url not in ours and not _own(url)]
    return Shown(asked, {int(width): seen for width, seen in told.items()})


def _own(url: str) -> bool:
    host = urlsplit(url).hostname or url.partition(":")[0]
    return host.endswith(OWN) or url == f"http://{HOST}/favicon.ico"


@contextmanager
def _proxy(pages: dict[str, bytes]) -> Iterator[tuple[int, list[str]]]:
    """A proxy that has these pages and nothing else; its port, and the URLs that it is asked for."""
    log: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            log.append(self.path)
            url = urlsplit(self.path)
            content = pages.get(url.path) if url.hostname == HOST else None
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def do_CONNECT(self) -> None:
            log.append(self.path)
            self.send_error(403)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], log
    finally:
        server.shutdown()
        server.server_close()
