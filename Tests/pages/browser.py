"""A real browser, Debian's chromium, driven by selenium; and waits for visible elements."""
import contextlib
import time

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE = 30
# Noted from the first script of each page on: violations of the policy, and uncaught errors.
WATCH = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => window.refused.push(event.violatedDirective + " " + event.blockedURI + " " + event.sample));
addEventListener("error", (event) => window.refused.push("error: " + event.message));
addEventListener("unhandledrejection", (event) => window.refused.push("rejection: " + event.reason));
"""


class Stuck(Exception):
    """An awaited state did not come."""


class Browser:
    def __init__(self, **looks):
        self.looks, self.cookies = looks, []
        self.begin(**looks)

    def begin(self, width=1440, height=900, dark=False, touch=False, language="en", trusted=None):
        """`trusted`: an origin with the rights of one that came over https."""
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", f"--window-size={width},{height}", "--disable-background-timer-throttling"):
            options.add_argument(word)
        if trusted:
            options.add_argument(f"--unsafely-treat-insecure-origin-as-secure={trusted}")
        options.add_experimental_option("prefs", {"intl.accept_languages": language})
        if touch:
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 2, "touch": True}})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.driver.set_script_timeout(60)
        # Less than selenium's own time limit, so that the failure names the page.
        self.driver.set_page_load_timeout(100)
        if not touch:
            self.size(width, height)
        self.command("Emulation.setFocusEmulationEnabled", enabled=True)
        self.scheme(dark)
        self.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def command(self, name, **values):
        return self.driver.execute_cdp_cmd(name, values)

    def size(self, width, height):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, dark):
        self.command("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}, {"name": "prefers-reduced-motion", "value": "reduce"}])

    def close(self):
        with contextlib.suppress(WebDriverException):
            self.driver.quit()

    def go(self, address):
        """Loads a page. If the browser's own process hangs, as on a busy machine, says so and uses a new browser; a page that hangs also hangs there."""
        try:
            self.driver.get(address)
            self.cookies = self.driver.get_cookies()
        except TimeoutException:
            print(f"        {address} did not load: {self.waits_for()}; again in a new browser", flush=True)
            self.close()
            self.begin(**self.looks)
            try:
                # Cookies are of a page's host.
                self.driver.get("/".join(address.split("/")[:3]) + "/pages/icon.svg")
                for cookie in self.cookies:
                    self.driver.add_cookie({name: cookie[name] for name in ("name", "value", "path", "httpOnly") if name in cookie})
                self.driver.get(address)
            except TimeoutException as error:
                raise Stuck(f"{address} does not load: {self.waits_for()}") from error

    def waits_for(self):
        """The open requests of a page that does not load; a browser that does not even answer this is busy, or hangs itself."""
        try:
            self.driver.set_script_timeout(20)
            return self.script("""return JSON.stringify([location.href, document.readyState, performance.now(),
              performance.getEntriesByType("resource").map((one) => [one.name, one.startTime, one.responseEnd]).slice(-40)])""")
        except WebDriverException as error:
            return f"no answer: {str(error).partition('Stacktrace:')[0].rstrip()}"
        finally:
            self.driver.set_script_timeout(60)

    def script(self, words, *values):
        return self.driver.execute_script(words, *values)

    def until(self, what, seen, patience=PATIENCE):
        """Repeats the check until it succeeds, and returns its value."""
        end = time.monotonic() + patience
        trouble = None
        while time.monotonic() < end:
            try:
                value = seen()
                if value:
                    return value
            except (StaleElementReferenceException, WebDriverException, IndexError) as error:
                trouble = error
            time.sleep(0.05)
        raise Stuck(f"waited for {what}; the page says: {self.text()[:1500]!r}" + (f"; {trouble}" if trouble else ""))

    def text(self, selector="body"):
        return self.script("return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText).join('\\n')", selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def find(self, selector):
        return self.until(f"{selector}", lambda: next(iter(one for one in self.all(selector) if one.is_displayed()), None))

    def shows(self, words, selector="body"):
        return self.until(f"{words!r} in {selector}", lambda: words in self.text(selector))

    def click(self, selector):
        self.until(f"a click on {selector}", lambda: (self.find(selector).click(), True)[1])

    def press(self, selector, words, inner=None):
        """Clicks the first element with these words; `inner`: an element inside it. If it is redrawn meanwhile, the search is repeated."""
        def pressed():
            for one in self.all(selector):
                if words in one.text:
                    (one.find_element(By.CSS_SELECTOR, inner) if inner else one).click()
                    return True
            return False
        self.until(f"a click on {words!r} in {selector}", pressed)

    def click_at(self, selector, x, y):
        """`x`, `y`: from the middle of the element."""
        webdriver.ActionChains(self.driver).move_to_element_with_offset(self.find(selector), x, y).click().perform()

    def keys(self, *words):
        webdriver.ActionChains(self.driver).send_keys(*words).perform()

    def type(self, selector, words):
        field = self.find(selector)
        field.click()
        field.send_keys(words)

    def path(self):
        return self.script("return location.pathname + location.search")

    def refusals(self):
        return self.script("return window.refused ?? []")

    def picture(self, location):
        self.driver.save_screenshot(str(location))


__all__ = ["Browser", "Keys", "Stuck", "PATIENCE"]
