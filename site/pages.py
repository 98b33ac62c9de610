#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the site is built of: pages.py BUILD. The pages of docs/, pages from beside it (PAGES) and the reference of the headers
(reference.py) become BUILD/site-pages/, and the settings BUILD/mkdocs.yml. A link out of docs/ leads to the page of a header, or to a copy of
the file in files/ of the site."""
import os
import pathlib
import re
import shutil
import sys

import reference

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", "bench/README.md", "rust/README.md", "go/README.md")
MAINTAINERS = ("internals/", "project/CONTRIBUTING.md", "project/bench/")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\]\([^)]*\))*\])\(([^)\s]+)\)")
CODE = re.compile(r"^(?:```.*?^```|    .*?$)|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def site_link(source, page, link, text, copies):
    """The Markdown or HTML of a link of the file `source`, as it is in the site's page."""
    name, mark, anchor = link.partition("#")
    if not name or re.match(r"[a-z][a-z0-9+.-]*:", name):
        return f"{text}({link})"
    target = os.path.normpath(os.path.join(os.path.dirname(source), name))
    here = os.path.dirname(page) or "."
    if target in PAGES:
        return f"{text}({os.path.relpath(f'project/{target}', here)}{mark}{anchor})"
    if target.startswith("docs/"):
        address = os.path.relpath(target.removeprefix("docs/"), here)
        shown = f"{text}({address}{mark}{anchor})"
        return f"[{shown}]({address})" if text.startswith("!") else shown  # a picture opens alone, to be enlarged
    if target.startswith("include/tandem/"):
        return f"{text}({os.path.relpath('reference/' + reference.page_name(target.removeprefix('include/tandem/')), here)})"
    address = f"files/{target}" + ("" if target.endswith((".svg", ".json")) else ".txt")
    copies[address] = target
    return f'<a href="{os.path.relpath(address, here)}">{text[1:-1]}</a>'


def site_page(source, page, copies):
    text, parts, end = (ROOT / source).read_text(), [], 0

    def linked(part):
        return LINK.sub(lambda link: site_link(source, page, link.group(2), link.group(1), copies), part)

    for code in CODE.finditer(text):  # links are outside of code
        parts += [linked(text[end:code.start()]), code.group()]
        end = code.end()
    return (UNSEARCHED if page.startswith(MAINTAINERS) else "") + "".join(parts) + linked(text[end:])


def main(build):
    docs = build / "site-pages"
    shutil.rmtree(docs, ignore_errors=True)
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("*.md", "*.in"))
    pages, copies = {}, {}
    for path in (ROOT / "docs").rglob("*.md"):
        page = str(path.relative_to(ROOT / "docs"))
        pages[page] = site_page(f"docs/{page}", page, copies)
    for name in PAGES:
        pages[f"project/{name}"] = site_page(name, f"project/{name}", copies)
    headers = {path.name: path.read_text() for path in sorted((ROOT / "include/tandem").glob("*.h*")) if path.name != "results.hpp"}
    for header, text in reference.pages(headers).items():
        pages[f"reference/{reference.page_name(header)}"] = text
    for address, target in copies.items():
        place, source = docs / address, ROOT / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(f"{path.name}\n" for path in sorted(source.iterdir())) if source.is_dir() else source.read_text())
    for page, text in pages.items():
        place = docs / page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    for name in ("site.css", "logo.svg"):
        shutil.copyfile(ROOT / "site" / name, docs / name)
    settings = (ROOT / "site/mkdocs.yml").read_text()
    (build / "mkdocs.yml").write_text(settings)
    if differ := set(re.findall(r"^ +- .*: (\S+\.md)$", settings, re.MULTILINE)) ^ set(pages):
        sys.exit(f"the list of pages in site/mkdocs.yml and the pages differ: {', '.join(sorted(differ))}")


main(pathlib.Path(sys.argv[1]))
