#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the pages of a built site: check_site.py SITE. Every relative link, picture and script leads to a file there, with the
anchor that it names, and every picture has a text. Where Chromium is installed, it also opens each page as wide as a phone: none may scroll sideways."""
import functools
import html
import html.parser
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse

PHONE_PIXELS = 390
# Opens the pages one after the other in a frame, and leaves [page, its width] of those that are too wide.
OPEN_PAGES = """<pre id="found">not ready</pre><iframe id="frame" style="width: %dpx; height: 800px; border: 0"></iframe><script>
const pages = %s, wide = [], frame = document.getElementById("frame");
frame.onload = () => {
  if (frame.name) {
    const width = frame.contentDocument.documentElement.scrollWidth;
    if (width > frame.clientWidth) wide.push([frame.name, width]);
  }
  frame.name = pages.shift() || "";
  if (frame.name) frame.src = frame.name;
  else document.getElementById("found").textContent = JSON.stringify(wide);
};
frame.onload();
</script>"""


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.without_text, self.anchors = [], [], set()

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("href", "src") and value]
        self.anchors |= {value for name, value in attributes if name == "id"}
        if tag == "img" and not dict(attributes).get("alt"):
            self.without_text.append(dict(attributes).get("src"))


def links_of(page):
    links = Links()
    links.feed(page.read_text())
    return links


def wrong_links(site, pages):
    wrong, count = [], 0
    links = {site / page: links_of(site / page) for page in pages}
    for page in pages:
        wrong += [f"{page}: the picture {name} has no text" for name in links[site / page].without_text]
        for link in links[site / page].found:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc:
                continue
            count += 1
            place = os.path.normpath((site / page).parent / urllib.parse.unquote(address.path)) if address.path else site / page
            target = pathlib.Path(place)
            if not target.exists():
                wrong.append(f"{page}: {link}: no such file in the site")
            elif target in links and address.fragment and address.fragment not in links[target].anchors:
                wrong.append(f"{page}: {link}: no such anchor in the page")
    return wrong if count else ["the site has no links"]


class Server(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments, pages, **options):
        self.pages = pages
        super().__init__(*arguments, **options)

    def do_GET(self):
        if self.path != "/check-width":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write((OPEN_PAGES % (PHONE_PIXELS, json.dumps(self.pages))).encode())

    def log_message(self, *_):
        pass


def wide_pages(site, pages, browser):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=site, pages=pages))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=600000", "--dump-dom",
               f"http://127.0.0.1:{server.server_port}/check-width"]
    page = ""
    for _ in range(3):  # it takes seconds, but the first start of a browser on a machine may hang
        try:
            page = subprocess.run(command, capture_output=True, text=True, timeout=100).stdout
            break
        except subprocess.TimeoutExpired:
            print(f"check_site.py: {browser} hung, and starts again")
    server.shutdown()
    found = re.search(r'<pre id="found">(.*?)</pre>', page)
    if not found or not found.group(1).startswith("["):
        return [f"{browser} did not open all pages"]
    return [f"{name} is {width} pixels wide on a phone of {PHONE_PIXELS}" for name, width in json.loads(html.unescape(found.group(1)))]


def main(site):
    pages = [str(page.relative_to(site)) for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    wrong = wrong_links(site, pages)
    if browser := shutil.which("chromium"):
        wrong += wide_pages(site, pages, browser)
    else:
        print("check_site.py: NOT RUN: the width of pages on a phone: Chromium is not installed (apt-get install chromium)")
    if wrong:
        sys.exit("\n".join(wrong))


main(pathlib.Path(sys.argv[1]).resolve())
