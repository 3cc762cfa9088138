"""TensorBoard as a person sees it: a real, headless Chromium."""

import shutil
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1200,860",
]  # fmt: skip


@contextmanager
def chromium():
    """A browser that ends with the block."""
    driver = shutil.which("chromedriver")
    assert driver, "chromedriver is missing: apt-get install chromium chromium-driver"
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def loss_card(browser, address):
    """Open TensorBoard and return the card of the loss, once it has a curve."""
    browser.get(f"{address}/?smoothing=0#timeseries")

    def drawn(_):
        cards = [
            card for card in browser.find_elements(By.CSS_SELECTOR, "card-view") if "/loss\n" in card.text
        ]
        return next((card for card in cards if card.find_elements(By.CSS_SELECTOR, "line-chart")), None)

    return WebDriverWait(browser, 60).until(drawn)
