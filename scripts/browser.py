"""A headless Chromium of the distribution, for the checks of pages."""

import shutil
import time
from pathlib import Path


def find():
    """Paths of browser and driver, or None."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def start(size=(1500, 950)):
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    browser, driver = find()
    o = Options()
    o.binary_location = browser
    for a in ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
              "--disable-dev-shm-usage", f"--window-size={size[0]},{size[1]}"]:
        o.add_argument(a)
    o.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=o, service=Service(driver))


def open_page(d, path, fragment="", wait=30):
    """Opens a page and waits until it is usable; milliseconds since the
    navigation began, by the browser's own clock."""
    d.get("about:blank")
    d.get("file://" + str(Path(path).resolve()) + fragment)
    end = time.time() + wait
    while time.time() < end:
        if d.execute_script("return document.documentElement.dataset.ready === '1'"):
            return d.execute_script("return window.scalifyReady")
        time.sleep(0.01)
    raise SystemExit(f"{path}: not usable after {wait} s")
