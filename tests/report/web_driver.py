"""A browser without a window, driven over the WebDriver protocol; skips where there is none."""

import json
import shutil
import socket
import subprocess
import time
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


class Browser:
    """One session."""

    def __init__(self) -> None:
        if CHROMIUM is None or DRIVER is None:
            pytest.skip("needs chromium and chromedriver")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.base = f"http://127.0.0.1:{port}"
        self._wait()
        options = {"binary": CHROMIUM, "args": ["--headless", "--no-sandbox", "--disable-gpu"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/session/{made['sessionId']}"

    def _wait(self) -> None:
        for _ in range(200):
            try:
                self._ask("GET", "/status")
                return
            except (URLError, ConnectionError):
                time.sleep(0.05)
        raise AssertionError("chromedriver does not answer")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            self.base + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, url: str) -> None:
        """Load a page."""
        self._ask("POST", "/url", {"url": url})

    def resize(self, width: int, height: int = 900) -> None:
        """Show the page as a screen of so many pixels does."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": size}
        self._ask("POST", "/goog/cdp/execute", command)

    def run(self, script: str) -> Any:
        """The value of a script in the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def log(self) -> list[str]:
        """Everything on the console."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()
