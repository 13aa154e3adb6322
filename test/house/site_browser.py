#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Looks at the site in a browser, headless Chromium: pages are shown without an error of theirs, fit a narrow screen,
# are dark where that is asked for, and the search finds what is typed and leads there. Called by site.py.
#
#   site_browser.py SITE
#
# Exit status 0: as it should be; 1: not; 77: there is no Chromium with its driver that can be started, or no Selenium.
"""What a browser shows of the site."""

import contextlib
import functools
import http.server
import os
import re
import shutil
import sys
import threading

PHONE = (390, 844)
SCREEN = (1400, 900)


def missing():
    """Why this cannot look; empty where it can."""
    try:
        from selenium.common.exceptions import WebDriverException
    except ImportError:
        return "selenium is not here"
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        return "chromium and its chromedriver are not here"
    try:
        with browser():
            return ""
    except WebDriverException as error:
        return f"chromium does not start here: {str(error).strip().splitlines()[0]}"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder):
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


@contextlib.contextmanager
def browser():
    from selenium import webdriver
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_page_load_timeout(60)
    try:
        yield driver
    finally:
        driver.quit()


def screen(driver, size, dark=False):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})


def brightness(driver, of):
    """0, black, to 255 of a color of the page's text or background."""
    color = driver.execute_script("return getComputedStyle(document.querySelector('.md-typeset h1'))[arguments[0]]"
                                  if of == "color" else "return getComputedStyle(document.body)[arguments[0]]", of)
    return sum(float(each) for each in re.findall(r"[\d.]+", color)[:3]) / 3


def page_faults(driver, url, size, dark=False):
    """What is wrong with how one page is shown."""
    screen(driver, size, dark)
    driver.get(url)
    for line in driver.get_log("browser"):
        if line["level"] == "SEVERE":
            yield f"says in its console: {line['message']}"
    if not driver.execute_script("return document.querySelector('.md-typeset h1') !== null"):
        yield "has no title"
        return
    wide = driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    if wide > 0:
        yield f"is {wide} pixels wider than a screen of {size[0]}"
    text, behind = brightness(driver, "color"), brightness(driver, "backgroundColor")
    if (behind < text) != dark or abs(behind - text) < 60:
        yield f"has text of brightness {text:.0f} on {behind:.0f}, and was to be {'dark' if dark else 'light'}"


def search_faults(driver, base, words, wanted):
    """Types `words` where a reader would, and follows what is found first under the page `wanted`."""
    from selenium.common.exceptions import TimeoutException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait
    screen(driver, SCREEN)
    driver.get(base)
    field = driver.find_element(By.CSS_SELECTOR, "input.md-search__input")
    field.click()
    field.send_keys(words)
    links = f".md-search-result__link[href*='{wanted}']"
    try:
        WebDriverWait(driver, 30).until(lambda d: d.find_elements(By.CSS_SELECTOR, links))
    except TimeoutException:
        yield f"a search for '{words}' does not find {wanted}"
        return
    driver.execute_script("arguments[0].click()", driver.find_elements(By.CSS_SELECTOR, links)[0])
    try:
        WebDriverWait(driver, 30).until(lambda d: wanted in d.current_url)
    except TimeoutException:
        yield f"what a search for '{words}' has found does not lead to {wanted}"


def menu_faults(driver, base):
    """On a phone the pages are behind a button."""
    from selenium.webdriver.common.by import By
    screen(driver, PHONE)
    driver.get(base)
    left = "return document.querySelector('.md-sidebar--primary').getBoundingClientRect().left"
    hidden = driver.execute_script(left) < 0
    driver.find_element(By.CSS_SELECTOR, "label.md-header__button[for=__drawer]").click()
    driver.execute_async_script("setTimeout(arguments[0], 1000)")
    if not hidden or driver.execute_script(left) < 0:
        yield "on a narrow screen the menu does not open"


PLANTED = """<!doctype html><html><head><style>body { background: #fff }</style></head><body>
<div class="md-typeset"><h1 style="color: #eee">planted</h1></div><div style="width: 3000px">wide</div>
<script>nothing.there()</script></body></html>"""


def faults(site):
    """What is wrong with a site that was built."""
    pages = [file for file in sorted(os.listdir(os.path.join(site, "docs"))) if file.endswith(".html")]
    shown = ["index.html", *(f"docs/{page}" for page in pages), "examples/hello.html",
             "reference/host/communicator.html"]
    with open(os.path.join(site, "planted.html"), "w", encoding="utf-8") as file:
        file.write(PLANTED)
    with served(site) as base, browser() as driver:
        for page in shown:
            for size, dark in ((PHONE, False), (SCREEN, True)):
                yield from (f"{page} {fault}" for fault in page_faults(driver, base + page, size, dark))
        yield from search_faults(driver, base, "portChannel", "port_channel")
        yield from search_faults(driver, base, "race", "find_the_race")
        yield from menu_faults(driver, base)
        found = " ".join(page_faults(driver, base + "planted.html", PHONE))
        for wanted in ("says in its console", "wider than a screen", "has text of brightness"):
            if wanted not in found:
                yield f"a planted fault is not found: that a page {wanted}: {found}"
    os.remove(os.path.join(site, "planted.html"))


def main():
    why = missing()
    if why:
        print(f"skipped: {why}")
        return 77
    found = list(faults(sys.argv[1]))
    for fault in found:
        print(f"error: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
