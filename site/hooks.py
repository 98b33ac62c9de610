# SPDX-License-Identifier: Apache-2.0
"""What mkdocs lacks: pages from beside docs/ (PAGES), the reference of the headers (reference.py), and links that lead out of
docs/. A header leads to its page of the reference, any other file to a copy in files/ of the site."""
import os
import pathlib
import re
import shutil
import sys

from mkdocs.structure.files import File

sys.path.insert(0, os.path.dirname(__file__))
import reference  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", "bench/README.md", "rust/README.md", "go/README.md")
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\]\([^)]*\))*\])\(([^)\s]+)\)")
CODE = re.compile(r"^(?:```.*?^```|    .*?$)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
copied = set()


def on_files(files, config):
    files.append(File.generated(config, "site.css", content=(ROOT / "site/site.css").read_text()))
    for name in PAGES:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text()))
    headers = {path.name: path.read_text() for path in sorted((ROOT / "include/tandem").glob("*.h*")) if path.name != "results.hpp"}
    for header, page in reference.pages(headers).items():
        files.append(File.generated(config, f"reference/{reference.page_name(header)}", content=page))
    return files


def repository_path(page):
    name = page.file.src_uri
    return name.removeprefix("project/") if name.startswith("project/") else f"docs/{name}"


def site_link(page, link, text):
    """The Markdown or HTML of a link of the page, as it is in the site."""
    name, mark, anchor = link.partition("#")
    if not name or re.match(r"[a-z][a-z0-9+.-]*:", name):
        return f"{text}({link})"
    target = os.path.normpath(os.path.join(os.path.dirname(repository_path(page)), name))
    here = os.path.dirname(page.file.src_uri) or "."
    if target in PAGES:
        return f"{text}({os.path.relpath(f'project/{target}', here)}{mark}{anchor})"
    if target.startswith("docs/"):
        address = os.path.relpath(target.removeprefix("docs/"), here)
        shown = f"{text}({address}{mark}{anchor})"
        return f"[{shown}]({address})" if text.startswith("!") else shown  # a picture opens alone, to be enlarged
    if target.startswith("include/tandem/"):
        page = "reference/" + reference.page_name(target.removeprefix("include/tandem/"))
        return f"{text}({os.path.relpath(page, here)})"
    address = f"files/{target}" + ("" if "." in os.path.basename(target) and target.endswith((".svg", ".json")) else ".txt")
    copied.add((target, address))
    return f'<a href="{os.path.relpath(address, here)}">{text[1:-1]}</a>'


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri.startswith("reference/"):
        return markdown
    parts, end = [], 0
    for code in CODE.finditer(markdown):  # links are outside of code
        parts += [LINK.sub(lambda link: site_link(page, link.group(2), link.group(1)), markdown[end:code.start()]), code.group()]
        end = code.end()
    return "".join(parts) + LINK.sub(lambda link: site_link(page, link.group(2), link.group(1)), markdown[end:])


def on_post_build(config):
    for source, address in copied:
        place = pathlib.Path(config["site_dir"], address)
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_file():
            shutil.copyfile(ROOT / source, place)
        else:
            place.write_text("".join(f"{path.name}\n" for path in sorted((ROOT / source).iterdir())))
