"""Chromium for the tests of pages.

It is reached by numeric addresses, because a container may have no /etc/hosts and so no localhost.
"""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common import utils

SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1000")
START_LIMIT_S = 60


class LoopbackService(Service):
    """A chromedriver with a numeric address."""

    @property
    def service_url(self):
        return f"http://127.0.0.1:{self.port}"

    def is_connectable(self):
        return utils.is_connectable(self.port, "127.0.0.1")


def _port(folder, process):
    """Returns the port that Chromium has chosen. Chromium writes it to a file in `folder`."""
    told = pathlib.Path(folder, "DevToolsActivePort")
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        lines = told.read_text().splitlines() if told.exists() else []
        if len(lines) > 1:
            return int(lines[0])
        time.sleep(0.01)
    raise RuntimeError(f"chromium did not start within {START_LIMIT_S} s (exit code {process.poll()})")


@contextlib.contextmanager
def started():
    """Returns a driver for a new browser.

    A browser that chromedriver starts itself would be searched for at localhost.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [shutil.which("chromium"), *SWITCHES, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            options = Options()
            options.debugger_address = f"127.0.0.1:{_port(folder, process)}"
            options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
            driver = webdriver.Chrome(options=options, service=LoopbackService(shutil.which("chromedriver")))
            try:
                yield driver
            finally:
                driver.quit()
        finally:
            process.terminate()
            process.wait(START_LIMIT_S)
