"""Text to sentences: the prose of plain text, Markdown or reStructuredText, then each paragraph into its sentences.

Called by the summarizer; calls nothing. The patterns are linear in the text: possessive, and runs are tried at their
start only.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum, auto

_INDENT_OF_CODE = 4


class _Kind(Enum):
    BLANK = auto()
    TEXT = auto()
    ITEM = auto()  # the first line of a list's item
    RULE = auto()  # a line of marks: over or under a heading, in a table, between parts
    OTHER = auto()  # headings, code, tables, fields: no prose


_FENCE = re.compile(r"\s*(?:(```+)[^`]*$|(~~~+))")
_RULE = re.compile(r"(?:([=\-~^\"'`*+#_.:])\1{2,}|[=\-+|: ]{3,})$")
_ITEM = re.compile(r"(?:[-*+•–]|\d{1,9}[.)]|\(\d{1,9}\))\s+")
_OTHER = re.compile(
    r"""\#{1,6}\s                # a heading
      | [|+] | >>> | \.\.\.\s    # a table, a prompt
      | \$\s | \.\.\s            # a shell's prompt, a directive
      | :[\w\- ]+:(?:\s|$)       # a field
      | \[[^\]]+\]:\s            # a link's target""",
    re.VERBOSE,
)
_COLUMNS = re.compile(r"\S {3,}\S")  # a row of a table without lines
# Markup within a line, and what of it is text.
_MARKUP = [
    (re.compile(r"!\[[^\[\]]*\]\([^()]*\)"), ""),  # an image
    (re.compile(r"(?<![\w\])])\[([^\[\]]*)\](?:\([^()\s]+\)|\[[^\[\]]*\])"), r"\1"),  # a link in Markdown
    (re.compile(r"(?<!`)`([^`<>]+) <[^`<>]+>`__?"), r"\1"),  # and in reStructuredText
    (re.compile(r"</?(?:a|b|br|code|details|div|em|h[1-6]|hr|i|img|kbd|li|ol|p|picture|source|strong|sub|summary|sup"
                r"|table|tbody|td|th|tr|ul)\b[^<>]*>|<!--[^<>]*-->"), ""),
]  # fmt: skip

_STOP = re.compile(
    r"""(?<![.!?…।؟۔])([.!?…।؟۔]++)["'”’»)\]*_`]*+\s  # one run of stops, what closes after it, a space
      | (?<![。！？｡])[。！？｡]++["”’」』）》]*+          # the East Asian stops need no space""",
    re.VERBOSE,
)
_OPENING = re.compile(r"[\s\"'“‘«(\[*_`]*+")
# Words whose full stop ends no sentence: abbreviations, and initials as in "J. Postel".
_ABBREVIATION = re.compile(
    r"""(?:^|[\s("'“‘\[])(?:[A-Z]|e\.?g|i\.?e|cf|vs|viz|a\.k\.a|al|approx|resp|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Rev
        |Fig|Figs|Eq|Sec|Ch|No|Nos|Vol|pp|p|ed|eds|Inc|Ltd|Co|Corp|Jan|Feb|Mar|Apr|Aug|Sept|Sep|Oct|Nov|Dec)\.$""",
    re.VERBOSE,
)
_ABBREVIATION_CHARACTERS_MAX = 10


def sentences(text: str) -> Iterator[str]:
    """The sentences of the prose in order, white space collapsed; of every line, if nothing looks like prose."""
    found = False
    for paragraph in paragraphs(text):
        found = True
        yield from split(paragraph)
    if not found:
        for line in text.splitlines():
            yield from split(" ".join(line.split()))


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and list items as one line each, without links' targets, images and tags."""
    lines: list[str] = []
    for kind, line in _classified(text):
        if kind is _Kind.RULE and len(lines) == 1:  # a heading stood over it
            lines = []
        if kind is not _Kind.TEXT:
            yield from _joined(lines)
            lines = []
        if kind in (_Kind.TEXT, _Kind.ITEM):
            lines.append(line)
    yield from _joined(lines)


def _joined(lines: list[str]) -> Iterator[str]:
    if paragraph := _plain(" ".join(lines)):  # again: a link may begin on one line and end on the next
        yield paragraph


def _plain(line: str) -> str:
    """The line without markup, with single spaces."""
    for pattern, kept in _MARKUP:
        line = pattern.sub(kept, line)
    return " ".join(line.split())


def split(paragraph: str) -> Iterator[str]:
    """The sentences of one paragraph, which has single spaces; its end ends the last."""
    start = 0
    for stop in _STOP.finditer(paragraph):
        if _ends_sentence(paragraph, start, stop):
            yield paragraph[start : stop.end()].strip()
            start = stop.end()
    if rest := paragraph[start:].strip():
        yield rest


def _ends_sentence(paragraph: str, start: int, stop: re.Match[str]) -> bool:
    if stop[1] is None:
        return True
    if stop[1] == ".":
        word = paragraph[max(start, stop.end(1) - _ABBREVIATION_CHARACTERS_MAX) : stop.end(1)]
        if _ABBREVIATION.search(word):
            return False
    opening = _OPENING.match(paragraph, stop.end())
    follows = opening.end() if opening else stop.end()
    return not paragraph[follows : follows + 1].islower()


def _classified(text: str) -> Iterator[tuple[_Kind, str]]:
    """Each line with its kind, stripped; code between fences and indented code are OTHER."""
    fence = ""
    before = _Kind.BLANK
    for line in inspect.cleandoc(text).splitlines():
        mark = _fence_mark(line, before)
        if fence or mark:
            fence, before = _fence_after(fence, mark), _Kind.OTHER
            yield before, ""
            continue
        bare = _plain(line)
        before = _kind(line, bare, before)
        yield before, _ITEM.sub("", bare, count=1) if before is _Kind.ITEM else bare


def _fence_mark(line: str, before: _Kind) -> str:
    """The marks of a line that opens or closes a fence; tildes right under a line of text make it a heading."""
    found = _FENCE.match(line)
    if not found or (found[2] and before is _Kind.TEXT):
        return ""
    return found[1] or found[2]


def _fence_after(fence: str, mark: str) -> str:
    """The open fence after a line with `mark`: a fence is closed by its own kind, at least as long."""
    if not fence:
        return mark
    return "" if mark.startswith(fence) else fence


def _kind(line: str, bare: str, before: _Kind) -> _Kind:
    if not bare:
        return _Kind.BLANK
    if _RULE.match(bare):
        return _Kind.RULE
    code = line.startswith(" " * _INDENT_OF_CODE) and before not in (_Kind.TEXT, _Kind.ITEM)
    if code or _OTHER.match(bare) or _COLUMNS.search(line):
        return _Kind.OTHER
    return _Kind.ITEM if _ITEM.match(bare) else _Kind.TEXT
