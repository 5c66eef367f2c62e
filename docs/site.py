"""Has lists read as GitHub reads them: MkDocs' Markdown wants four columns for what is in an item,
and an empty line before a list."""

import re

MARK = re.compile(r"(?:[-*]|\d+\.) +")
FENCE = re.compile(r" *(```|~~~)")


def on_page_markdown(markdown, **_):
    out, items, fenced, paragraph = [], [], False, False  # items: where the text of each open item begins
    for line in markdown.split("\n"):
        text = line.lstrip(" ")
        at = len(line) - len(text)
        mark = MARK.match(text)
        if not text:
            out.append(line)
            paragraph = False
            continue
        starts = mark and not fenced and at - (items[-1] if items else 0) < 4
        if not fenced and (starts or not paragraph):
            while items and at < items[-1]:
                items.pop()
        if starts and paragraph and not items:
            out.append("")
        inner = max(at - items[-1], 0) if items else at
        out.append("    " * len(items) + " " * inner + text)
        if FENCE.match(line):
            fenced = not fenced
        if starts:
            items.append(at + mark.end())
        paragraph = not fenced
    return "\n".join(out)
