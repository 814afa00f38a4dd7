"""Headless Chromium, controlled through two pipes (the DevTools protocol); needs no other package."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--hide-scrollbars", "--remote-debugging-pipe", "about:blank")  # fmt: skip


class Browser:
    """A page of a browser. `asked` has the addresses that it requested, `said` the messages of its console."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive, self._held, self._number = send, receive, b"", 0
        self._session: str | None = None
        self.asked: list[str] = []
        self.said: list[str] = []
        self.loaded = 0
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            piece = os.read(self._receive, 1 << 20)
            assert piece, "the browser exited"
            self._held += piece
        line, _, self._held = self._held.partition(b"\0")
        event: dict[str, Any] = json.loads(line)
        params = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif event.get("method") == "Page.loadEventFired":
            self.loaded += 1
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.said += [str(each.get("value")) for each in params["args"]]
        elif event.get("method") == "Runtime.exceptionThrown":
            self.said.append(json.dumps(params["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            self.said.append(params["entry"]["text"])
        return event

    def open(self, path: Path, width: int, height: int = 1000, scheme: str = "light") -> None:
        """Load a file in a window of this width, with a light or dark color scheme."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        before = self.loaded
        self("Page.navigate", url=path.resolve().as_uri())
        while self.loaded == before:
            self._next()

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return self("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, path: Path) -> None:
        """Write a screenshot of the window to a PNG file."""
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(chromium: str, directory: Path) -> Iterator[Browser]:
    """Start a browser with a new profile in `directory`."""
    ours, theirs = os.pipe(), os.pipe()  # the pipe that Chromium reads, the pipe that it writes
    script = f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}'
    words = ["bash", "-c", script, chromium, f"--user-data-dir={directory}", *FLAGS]
    process = subprocess.Popen(
        words,
        pass_fds=(ours[0], theirs[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(ours[0])
    os.close(theirs[1])
    try:
        yield Browser(ours[1], theirs[0])
    finally:
        os.close(ours[1])
        os.close(theirs[0])
        process.terminate()
        process.wait(10)
