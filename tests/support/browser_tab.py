"""A tab of Chromium that shows `ggufkit view`, and what went wrong in it."""

from __future__ import annotations

MINUS = "\u2212"
READY = "main:not([aria-busy]) .card"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


def shown_number(text):
    """Return a number as the page writes it, of a few digits."""
    return float(text.replace(MINUS, "-").replace(",", ""))


class Tab:
    """A page of the browser, and what went wrong in it."""

    def __init__(self, context, server):
        self.page = context.new_page()
        self.server = server
        self.wrong = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(dialog.message))
        self.page.on("console", self._note)

    def _note(self, message):
        if message.type in {"error", "warning"}:
            self.wrong.append(message.text)

    def show(self, view, model, **state):
        """Open a view of a model and wait until it is drawn."""
        place = "&".join(f"{key}={value}" for key, value in {"model": model, **state}.items())
        self.page.goto("about:blank")
        self.page.goto(f"{self.server.address.url}#{view}?{place}")
        self.page.wait_for_selector(READY, timeout=60_000)
        return self.page

    def until(self, condition):
        """Wait until an expression is true; Playwright's own way is `eval`, which is forbidden."""
        for _ in range(600):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(condition)

    def texts(self, selector):
        return [text.strip() for text in self.page.locator(selector).all_text_contents()]

    def facts(self):
        """Return the labelled facts of the page."""
        rows = self.page.locator(".facts-list > div").all_text_contents()
        labels = self.texts(".facts-list dt")
        return {
            label: row.strip().removeprefix(label) for label, row in zip(labels, rows, strict=True)
        }
