# SPDX-License-Identifier: Apache-2.0
"""C source text as a list of comments, functions, variables and prototypes.

Concept:   This is no compiler. It relies on the repository's clang-format style: a function's
           opening brace stands alone in column 0, and its closing brace is the next one in column
           0. Macros are not expanded, so a function that a macro defines is not seen.
"""
import bisect
import re
from typing import NamedTuple

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.M)
ATTRIBUTE = re.compile(r'__attribute__\s*\(\(.*?\)\)(?=\s|$|;|=)'
                       r'|\bMM_(?:PT_)?GUARDED_BY\([^()]*\)', re.S)
MACRO = re.compile(r'[A-Z_][A-Z0-9_]*\Z')
BRANCH = re.compile(r'\b(?:if|for|while|case)\b|&&|\|\||\?')
NOT_A_NAME = {'_Static_assert', '_Alignas', '__typeof__', 'typeof', 'if', 'for', 'while', 'switch',
              'sizeof', 'return', '__asm__', 'asm'}


class Comment(NamedTuple):
    """A comment from line @line to line @end. @trailing: code stands before it on that line."""
    line: int
    end: int
    text: str
    trailing: bool

    def sentences(self):
        """The text without the comment's marks and the stars that open its lines."""
        body = self.text[2:]
        if self.text.startswith('/*'):
            body = body[:-2].lstrip('*!')
        lines = [re.sub(r'^\s*\* ?', '', line).strip() for line in body.split('\n')]
        return '\n'.join(lines).strip()


class Function(NamedTuple):
    """A definition: @start is the first line of its head, @line the line of its name."""
    name: str
    static: bool
    start: int
    line: int
    end: int
    parameters: int
    complexity: int

    @property
    def length(self):
        return self.end - self.start + 1


class Name(NamedTuple):
    name: str
    line: int


def blank(text):
    return re.sub(r'[^\n]', ' ', text)


def groups(text):
    """The parenthesized groups of the outermost level: (word before, its place, text inside)."""
    found, depth, opened = [], 0, 0
    for match in re.finditer(r'[()]', text):
        if match.group() == '(':
            if depth == 0:
                opened = match.start()
            depth += 1
            continue
        depth -= 1
        if depth == 0:
            word = re.search(r'(\w+)\s*\Z', text[:opened])
            found.append((word.group(1) if word else '', word.start() if word else opened,
                          text[opened + 1:match.start()]))
    return found


def split_at_commas(text):
    parts, depth, last = [], 0, 0
    for match in re.finditer(r'[][(){},]', text):
        if match.group() in '[({':
            depth += 1
        elif match.group() != ',':
            depth -= 1
        elif depth == 0:
            parts.append(text[last:match.start()])
            last = match.end()
    return parts + [text[last:]]


def parameter_count(inside):
    return 0 if inside.strip() in ('', 'void') else len(split_at_commas(inside))


def declarator(text):
    """(name, place, parameters) of the function that @text declares or heads, or None."""
    candidates = groups(text)
    for word, place, inside in candidates:
        if word and word not in NOT_A_NAME and not MACRO.match(word):
            return word, place, parameter_count(inside)
    pointer = re.search(r'\(\s*\*\s*(\w+)\s*\(([^()]*)\)', text)
    if pointer:
        return pointer.group(1), pointer.start(1), parameter_count(pointer.group(2))
    return None


def macro_function(text):
    """The same for a body behind MACRO(name, ...): the first argument names the function."""
    for word, place, inside in reversed(groups(text)):
        if MACRO.match(word) and word != '__attribute__':
            return split_at_commas(inside)[0].strip(), place, 0
    return None


class Source:
    """One file's text, read once. @code is the text with spaces in place of what is no code."""

    def __init__(self, path, text):
        self.path = path
        self.lines = text.split('\n')
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        self.starts = [0] + [m.end() for m in re.finditer('\n', text)]
        self.comments, self.functions, self.variables, self.prototypes = [], [], [], []
        self.uncommented = TOKEN.sub(lambda match: self._token(text, match), text)
        self.code = DIRECTIVE.sub(lambda match: blank(match.group()), self.uncommented)
        self._read()

    def line_of(self, place):
        return bisect.bisect_right(self.starts, place)

    def _token(self, text, match):
        token = match.group()
        if token[0] != '/':
            return token[0] + blank(token[1:-1]) + token[-1]
        line = self.line_of(match.start())
        before = text[self.starts[line - 1]:match.start()]
        self.comments.append(Comment(line, self.line_of(match.end()), token, bool(before.strip())))
        return blank(token)

    def _read(self):
        """Cuts the code into declarations, which end with ';', and functions, which have a body."""
        code, begun, kept, at = self.code, 0, '', 0
        while True:
            match = re.compile(r'[{};]').search(code, at)
            if not match:
                return
            whole = kept + code[at:match.start()]
            head = self._own_head(whole)
            begun += len(whole) - len(head)
            at = match.end()
            if match.group() == '{':
                if re.search(r'\bextern\s*"\s*"\s*\Z', head):
                    pass
                elif self._is_function(head):
                    at = self._function(head, begun, match.start())
                else:
                    at = self._skip(match.start())
                    kept = head + '{' + blank(code[match.end():at - 1]) + '}'
                    continue
            elif match.group() == ';':
                self._declaration(head, begun)
            kept, begun = '', at

    def _skip(self, place):
        depth = 0
        for match in re.compile(r'[{}]').finditer(self.code, place):
            depth += 1 if match.group() == '{' else -1
            if depth == 0:
                return match.end()
        return len(self.code)

    @staticmethod
    def _is_function(head):
        bare = ATTRIBUTE.sub(lambda m: blank(m.group()), head).rstrip()
        bare = re.sub(r'\b[A-Z][A-Z0-9_]*\Z', '', bare).rstrip()
        return '=' not in bare and bare.endswith(')') and '}' not in bare

    def _function(self, head, begun, brace):
        bare = ATTRIBUTE.sub(lambda m: blank(m.group()), head)
        close = self.code.find('\n}', brace)
        end = len(self.code) if close < 0 else close + 2
        found = declarator(bare) or macro_function(bare)
        if not found:
            return end
        name, place, parameters = found
        start = begun + len(head) - len(head.lstrip())
        self.functions.append(Function(
            name, bool(re.search(r'\bstatic\b', bare[:place])), self.line_of(start),
            self.line_of(begun + place), self.line_of(end - 1), parameters,
            1 + len(BRANCH.findall(self.code, brace, end))))
        return end

    @staticmethod
    def _own_head(head):
        """The head without calls of macros that stand on lines of their own above it."""
        while True:
            match = re.match(r'\s*[A-Z_][A-Z0-9_]*\([^()]*\)[ \t]*\n(?=\s*\S)', head)
            if not match:
                return head
            head = head[match.end():]

    def _declaration(self, text, begun):
        bare = ATTRIBUTE.sub(lambda m: blank(m.group()), text)
        if re.match(r'\s*(typedef|_Static_assert)\b', bare) or not bare.strip():
            return
        first = split_at_commas(bare)[0].split('=')[0]
        function = declarator(first) if '(' in first else None
        if function and not re.search(r'\(\s*\*\s*(const\s+)?\w+\s*(\[[^]]*\]\s*)?\)', first):
            if '=' not in bare and not re.search(r'\bstatic\b', first):
                self.prototypes.append(Name(function[0], self.line_of(begun + function[1])))
            return
        if not re.search(r'\bstatic\b', first):
            return
        place = begun
        for part in split_at_commas(bare):
            before = re.sub(r'\[[^]]*\]', lambda m: blank(m.group()), part.split('=')[0])
            pointer = re.search(r'\(\s*\*\s*(?:const\s+)?(\w+)', before)
            names = [pointer] if pointer else list(re.finditer(r'([A-Za-z_]\w*)', before))
            if names:
                line = self.line_of(place + names[-1].start(1))
                self.variables.append(Name(names[-1].group(1), line))
            place += len(part) + 1
