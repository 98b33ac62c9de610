# SPDX-License-Identifier: Apache-2.0
"""Pages of the reference, one for each public header. The header's own sections are the page's sections. A comment with the
declarations below it is one entry: its names are the title, and its first sentence stands in the table at the top of the page.
The headers themselves stay free of markup; CONTRIBUTING.md has their form."""
import html
import re

SLOTS = ("Ownership", "Status", "On failure", "Threads", "Memory", "Example")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
ITEM = re.compile(r"(\S+(?:,? \S+)*)\s{2,}(\S.*)$|- (.*)$")
KINDS = {"typedef struct": "struct", "enum": "enumeration", "#define": "constant", "typedef": "type"}  # of code without a comment
SECTION = re.compile(r"/\* ---- (.*?) -+ \*/")
NAMES = re.compile(r"^(?:[\w ]+?[ *]+(tandem_\w+)\(|typedef .*\(\*(tandem_\w+)\)|typedef .* (tandem_\w+);|\} (tandem_\w+);"
                   r"|enum (tandem_\w+) \{|#define (TANDEM_\w+)|class (\w+) |inline .*?(\w+)\()", re.MULTILINE)


def escaped(text):
    text = html.escape(text, quote=False)
    return re.sub(r"(?<![\w*])([*_])(?=\w)", r"\\\1", text)


def markdown(comment, language):
    """The text of a comment. An indented line "name  text" is an item, other indented lines are code, slots begin a paragraph."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment[2:-2].split("\n")]
    out, in_list, in_code = [], 0, False
    for line in [*lines, ""]:
        words = line.strip()
        indent = len(line) - len(line.lstrip())
        begins_code = indent >= 3 and out and not out[-1] and not in_list
        if in_code and indent < 3:
            out.append("```")
            in_code = False
        if not words:
            out.append("")
            in_list = 0
        elif in_code or begins_code:
            if not in_code:
                out.append(f"```{language}")
            out.append(line.removeprefix("    ") if indent > 3 else words)
            in_code = True
        elif indent >= 2 and (item := ITEM.match(words)) and (not in_list or indent <= in_list):
            if not in_list:
                out.append("")
            in_list = indent
            out.append(f"- `{item.group(1)}` {escaped(item.group(2))}" if item.group(1) else f"- {escaped(item.group(3))}")
        elif in_list and indent > in_list:
            out.append("    " + escaped(words))
        else:
            slot = next((slot for slot in SLOTS if words.startswith(slot + ":")), None)
            if (in_list or slot) and out and out[-1]:
                out.append("")
            in_list = 0
            out.append(escaped(words) if slot is None else f"**{slot}:**{escaped(words[len(slot) + 1:])}")
    return "\n".join(out).strip("\n")


def first_sentence(comment):
    text = " ".join(re.sub(r"^\s*\* ?", "", line).strip() for line in comment[2:-2].split("\n"))
    found = re.match(r"\s*(.*?[.:])(\s|$)", text)
    return escaped(found.group(1).rstrip(".:") if found else text.strip())


def block_end(text, start):
    """The place behind the bracket that closes the one at `start`."""
    depth = 0
    for token in re.compile(r"[{}]|/\*.*?\*/|//[^\n]*|'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    raise ValueError(f"no end of the block: {text[start:start + 60]!r}")


def without_bodies(code):
    """C++ code without private members and the bodies of functions."""
    code = re.sub(r"\n private:\n.*?(?=^\};)", "", code, flags=re.DOTALL | re.MULTILINE)
    while found := re.search(r"(\)(?: const| noexcept)*)(?:\s+: [^;]*?)? \{", code):
        code = code[:found.end(1)] + ";" + code[block_end(code, found.end() - 1):]
    return code.strip("\n")


def declarations(text):
    """The text between the guards of a header, without what the preprocessor alone reads."""
    text = text[text.index("#include"):]
    text = re.sub(r"^#include.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^#if .*?^#endif\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^namespace detail \{.*?^\}  // namespace detail\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(namespace \w+ \{|\}  // namespace \w+|#endif.*)\n?", "", text, flags=re.MULTILINE)
    return text.replace("TANDEM_API ", "")


def entries(text):
    """[(section, comment or "", code)] in the order of the header."""
    found, section, comment = [], "", ""
    for part in re.split(r"(?m)^(?=/\*)|\n\n(?=\S)", without_bodies(declarations(text))):
        part = part.strip("\n")
        if heading := SECTION.match(part):
            section, part = heading.group(1), part[heading.end():].strip("\n")
        if head := COMMENT.match(part):
            comment, part = head.group(), part[head.end():].strip("\n")
        if part:
            found.append((section, comment, part))
            comment = ""
    return found


def names_of(code):
    """What the code of an entry declares."""
    return [next(filter(None, names)) for names in NAMES.findall(COMMENT.sub("", code))]


def pages(headers):
    """{header's name: Markdown} of {header's name: its text}. A name of the interface in a text is a link to its entry."""
    parsed = {name: entries(text) for name, text in headers.items()}
    place = {}
    for header in parsed:
        for _, _, code in parsed[header]:
            for name in names_of(code):
                if name.lower().startswith("tandem_"):
                    place[name] = page_name(header)

    def linked(text, here):
        def link(found):
            name = found.group()
            return f"[{name}]({'' if place[name] == here else place[name]}#{name.lower()})" if name in place else name
        outside = re.split(r"(```.*?```|`[^`]*`)", re.sub(r"\bdocs/(\w[\w./-]*\.md)", r"[docs/\1](../\1)", text), flags=re.DOTALL)
        return "".join(part if i % 2 else re.sub(r"\btandem_\w+", link, part) for i, part in enumerate(outside))

    return {header: page(header, text, parsed[header], linked) for header, text in headers.items()}


def page_name(header):
    return header.replace(".", "_") + ".md"


def page(header, text, parsed, linked):
    here, language = page_name(header), "cpp" if header.endswith(".hpp") else "c"
    head = next(comment for comment in COMMENT.findall(text) if "SPDX" not in comment)
    title = re.match(r"/\* (?:\S+ - )?", head).end()
    description = "/* " + head[title].upper() + head[title + 1:]
    table, body, section, used = ["| | |", "|---|---|"], [], "", set()
    for new_section, comment, code in parsed:
        if new_section != section:
            section = new_section
            table.append(f"| **{section[0].upper() + section[1:]}** | |")
            body.append(f"\n## {section[0].upper() + section[1:]}")
        if names := names_of(code):
            anchor = names[0].lower()
            if anchor in used:
                anchor = f"{section}-{anchor}"
            used.add(anchor)
            says = first_sentence(comment) if comment else next(kind for begin, kind in KINDS.items() if code.startswith(begin))
            table.append(f"| [{'<br>'.join(names)}](#{anchor}) | {says} |")
            # Each further name is a place that a link can lead to.
            others = "".join(f'<a id="{name.lower()}"></a>' for name in names[1:])
            body.append(f"\n### {', '.join(names)} {{ #{anchor} }}\n{others}")
        if comment:
            body.append("\n" + linked(markdown(comment, language), here))
        body.append(f"\n```{language}\n{code}\n```")
    return "\n".join([f"# {header}\n", linked(markdown(description, language), here), "", *table, *body, ""])
