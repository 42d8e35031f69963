"""A report as those see it who look at it: its words, its tags, and what a browser makes of it."""

from html.parser import HTMLParser

LOOKED_AT = """({
  heading: document.querySelector('h1').textContent,
  colour: getComputedStyle(document.querySelector('h1')).color,
  ground: getComputedStyle(document.body).backgroundColor,
  overflows: document.documentElement.scrollWidth > innerWidth,
  cut: [...document.querySelectorAll('section, header')]
    .filter(each => each.scrollWidth > each.clientWidth + 1).length,
  bars: [...document.querySelectorAll('svg rect')].filter(each => {
    const box = each.getBoundingClientRect(); return box.width > 0 && box.height > 0 }).length,
  marks: document.querySelectorAll('svg circle').length,
  opened: document.querySelectorAll('details[open]').length,
})"""
"""What is asked of a page in a browser."""


class Text(HTMLParser):
    """The text of a page, and the tags and links it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.links: list[str | None] = []
        self.feed(page)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)
