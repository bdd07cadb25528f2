#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""man3.py EXPORTS VERSION DATE FOLDER HEADER...: writes the manual of libmm-client from the comments of its headers.

One page for each function that EXPORTS lists, in section 3, and libmm-client(3), which lists them. An exported
function without a comment is an error, so that there can be none without a page.
"""
import dataclasses
import pathlib
import re
import sys
import textwrap

LIBRARY = "libmm-client"
COMMENT = re.compile(r"/\*\*\n(.*?)\*/\n(MM_API [^;]*;)", re.S)
STRUCT = re.compile(r"^struct (\w+) \{\n.*?^\};\n", re.S | re.M)


@dataclasses.dataclass
class Function:
    """What a header says of a function."""
    name: str
    header: str
    summary: str
    parameters: list  # of (name, text)
    text: list  # paragraphs
    returns: str
    prototype: str
    structs: list  # their definitions


def quoted(text):
    """The text for roff: no character of it is a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def emphasised(text):
    """Prose: parameters (@name) in italics, functions of the library in bold."""
    out = []
    for word in re.split(r"(@\w+|\bmm_\w+\(\))", text):
        if re.fullmatch(r"@\w+", word):
            out.append(f"\\fI{quoted(word[1:])}\\fR")
        elif re.fullmatch(r"mm_\w+\(\)", word):
            out.append(f"\\fB{quoted(word[:-2])}\\fR(3)")
        else:
            out.append(quoted(word))
    lines = textwrap.wrap("".join(out), 78, break_long_words=False, break_on_hyphens=False)
    return "\n".join(re.sub(r"^([.'])", r"\\&\1", line) for line in lines)


def verbatim(text):
    """Code, line by line. Troff would take a tab for a stop of its own."""
    return ".PP\n.nf\n" + quoted(text.rstrip("\n").expandtabs(8)) + "\n.fi\n"


def paragraphs(lines):
    """Lines of a comment as paragraphs; an entry of a list is one of its own."""
    found = [[]]
    for line in lines:
        if not line.strip():
            found.append([])
            continue
        if line.lstrip().startswith("- ") and found[-1]:
            found.append([])
        found[-1].append(line.strip())
    return [" ".join(part) for part in found if part]


def prose(parts):
    """Paragraphs as roff."""
    out = []
    for part in parts:
        if part.startswith("- "):
            out.append(".IP \\(bu 2\n" + emphasised(part[2:]) + "\n")
        else:
            out.append(".PP\n" + emphasised(part) + "\n")
    return "".join(out).removeprefix(".PP\n")


def function_parse(comment, prototype, header, structs):
    """The pieces of one kernel-doc comment."""
    lines = [re.sub(r"^ \* ?", "", line) for line in comment.rstrip(" ").splitlines()]
    name, summary = re.fullmatch(r"(\w+)\(\) - (.*)", lines[0]).groups()
    at = 1
    while at < len(lines) and lines[at].strip() and not lines[at].startswith("@"):
        summary += " " + lines[at].strip()
        at += 1
    parameters = []
    while at < len(lines) and lines[at].strip():
        found = re.match(r"@(\w+(?:\[\])?):\s*(.*)", lines[at])
        if found:
            parameters.append([found[1], found[2]])
        else:
            parameters[-1][1] += " " + lines[at].strip()
        at += 1
    text, _, returns = "\n".join(lines[at:]).partition("Return:")
    prototype = re.sub(r"\s+", " ", prototype.removeprefix("MM_API "))
    used = [structs[key] for key in dict.fromkeys(re.findall(r"struct (\w+)", prototype)) if key in structs]
    return Function(name, header, summary, parameters, paragraphs(text.splitlines()),
                    " ".join(returns.split()), prototype, used)


def functions_read(headers):
    """All functions of the headers that have a comment, by name."""
    functions = {}
    structs = {}
    texts = {path: path.read_text(encoding="utf-8") for path in headers}
    for text in texts.values():
        structs.update({found[1]: found[0] for found in STRUCT.finditer(text)})
    for path, text in texts.items():
        for found in COMMENT.finditer(text):
            one = function_parse(found[1], found[2], path.name, structs)
            functions[one.name] = one
    return functions


def folded(prototype):
    """A prototype in lines that fit on a terminal."""
    head, _, rest = prototype.partition("(")
    lines = [head + "("]
    for part in rest.split(", "):
        if len(lines[-1]) + len(part) > 72 and not lines[-1].endswith("("):
            lines.append(" " * 8)
        lines[-1] += part + ("" if part.endswith(";") else ", ")
    return "\n".join(line.rstrip() for line in lines)


def title(name, version, date):
    """What each page begins with."""
    return (f'.\\" SPDX-License-Identifier: Apache-2.0\n.TH {name.upper()} 3 "{date}" '
            f'"mmd {version}"\n')


def page(one, version, date):
    """The page of a function."""
    out = [title(one.name, version, date),
           f".SH NAME\n{one.name} \\- {quoted(one.summary)}\n",
           ".SH SYNOPSIS\n", verbatim(f"#include <mm/{one.header}>\n\n{folded(one.prototype)}").removeprefix(".PP\n"),
           ".PP\nLink with\n.IR \\-lmm\\-client .\n"]
    if one.text or one.parameters:
        out.append(".SH DESCRIPTION\n")
    for name, text in one.parameters:
        out.append(f".TP\n\\fI{name}\\fR\n{emphasised(text)}\n")
    body = prose(one.text)
    out.append(".PP\n" + body if one.parameters and body and not body.startswith(".IP") else body)
    for struct in one.structs:
        out.append(verbatim(struct))
    if one.returns:
        out.append(f".SH RETURN VALUE\n{emphasised(one.returns)}\n")
    out.append(f".SH SEE ALSO\n.BR {LIBRARY.replace('-', chr(92) + '-')} (3)\n")
    return "".join(out)


def sentence(text):
    """A phrase as a sentence."""
    return text[0].upper() + text[1:] + "."


def overview(functions, headers, version, date):
    """libmm-client(3): what the headers say of the whole, and a line for each function."""
    name = LIBRARY.replace("-", "\\-")
    out = [title(LIBRARY, version, date),
           f".SH NAME\n{name} \\- memory that mmd lends, for LLM serving engines\n",
           ".SH SYNOPSIS\n", verbatim("#include <mm/client.h>\n\ncc engine.c $(pkg-config --cflags --libs mm-client)")
           .removeprefix(".PP\n")]
    for path in headers:
        comment = re.search(r"^/\*\n \* \w+ - .*?\*/", path.read_text(encoding="utf-8"), re.S | re.M)[0]
        lines = [re.sub(r"^ \* ?", "", line) for line in comment.splitlines()[1:-1]]
        out.append(f".SH DESCRIPTION OF <mm/{path.name}>\n" + emphasised(sentence(lines[0].partition(" - ")[2])) + "\n")
        for line in lines[1:]:
            found = re.match(r"([A-Z]\w+):\s+(.*)", line)
            if found:
                out.append(f".TP\n\\fB{found[1]}\\fR\n{emphasised(found[2])}\n")
            elif line.strip():
                out.append(emphasised(line.strip()) + "\n")
        for one in functions.values():
            if one.header == path.name:
                out.append(f".TP\n\\fB{one.name}\\fR(3)\n{emphasised(one.summary)}\n")
    out.append(".SH SEE ALSO\n.BR mmd (8),\n.BR mmctl (1)\n")
    return "".join(out)


def main():
    exports, version, date, folder = sys.argv[1:5]
    headers = [pathlib.Path(path) for path in sys.argv[5:]]
    functions = functions_read(headers)
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(exports).read_text(encoding="utf-8"), flags=re.S)
    exported = re.findall(r"^\t(mm_\w+);", text, re.M)
    missing = [name for name in exported if name not in functions]
    if missing:
        sys.exit(f"man3.py: exported without a comment in a header: {', '.join(missing)}")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in exported:
        (folder / f"{name}.3").write_text(page(functions[name], version, date), encoding="utf-8")
    (folder / f"{LIBRARY}.3").write_text(
        overview({name: functions[name] for name in sorted(exported)}, headers, version, date), encoding="utf-8")


if __name__ == "__main__":
    main()
