"""Take the README's picture from the demo's TensorBoard (`make demo` first): python hack/picture.py"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from browser import chromium, loss_card  # noqa: E402

LINE = "kubectl -n dsjob-demo port-forward svc/deepspeed-helloworld-tensorboard 9090:6006"

if __name__ == "__main__":
    forward = subprocess.Popen(LINE.split(), stdout=subprocess.PIPE, text=True)
    try:
        print(forward.stdout.readline().strip() if forward.stdout else "")
        with chromium() as browser:
            loss_card(browser, "http://localhost:9090")
            # The side pane hides half of the curves.
            browser.find_element("xpath", "//button[contains(., 'Settings')]").click()
            loss_card(browser, "http://localhost:9090").click()
            browser.save_screenshot(str(ROOT / "docs" / "pictures" / "tensorboard.png"))
    finally:
        forward.kill()
        forward.wait()
