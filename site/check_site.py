#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every relative link, picture and script in the pages of a built site leads to a file there: check_site.py SITE. The pages of
Doxygen are the targets of links; their own are not looked at."""
import html.parser
import os
import pathlib
import sys
import urllib.parse


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("href", "src") and value]


def main(site):
    wrong, count = [], 0
    for page in sorted(site.rglob("*.html")):
        if page.is_relative_to(site / "api") or page.name == "404.html":
            continue
        links = Links()
        links.feed(page.read_text())
        for link in links.found:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc or not address.path:
                continue
            count += 1
            target = pathlib.Path(os.path.normpath(page.parent / urllib.parse.unquote(address.path)))
            if not target.exists():
                wrong.append(f"{page.relative_to(site)}: {link}: no such file in the site")
    if wrong or count == 0:
        sys.exit("\n".join(wrong + [f"check_site.py: {len(wrong)} of {count} links are wrong"]))


main(pathlib.Path(sys.argv[1]).resolve())
