"""The offline summarizer: sentences as people see them, two chosen that stand in the text, an end for any text."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.contract import Context, DocumentSaved, Reject, Upsert
from streams.readers._embedding import DIMENSIONS, embedder
from streams.readers._extractive import SENTENCE_CHARACTERS_MAX, extract
from streams.readers._sentences import sentences, split
from streams.readers.summarizer import make_summarizer, summarize
from streams.topics import BODY_BYTES_MAX

BRIDGES = """
A suspension bridge hangs its deck from cables that run over tall towers. The cables carry the load of the deck to
the towers and to anchorages at both ends. Suspension bridges span longer distances than any other kind of bridge.
I had soup for lunch. The longest of them crosses more than two kilometres between its towers.
"""
STANDARD_LIBRARY = ("json", "csv", "random", "socketserver", "statistics", "plistlib", "difflib", "shelve", "turtle")


def summary(body: str, title: str = "A title") -> str:
    return extract(title, body, embedder())


def collapsed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One here. Two there! Three? Four…", ["One here.", "Two there!", "Three?", "Four…"]),
        ("No stop at the end", ["No stop at the end"]),
        (
            "Dr. A. B. Smith paid approx. 3.50 for it. Then he left.",
            ["Dr. A. B. Smith paid approx. 3.50 for it.", "Then he left."],
        ),
        ("Use tools, e.g. Hammers. See Fig. 3 (cf. Sec. 2).", ["Use tools, e.g. Hammers.", "See Fig. 3 (cf. Sec. 2)."]),
        (
            "Apples, pears, etc. are fruit. Bread, etc. We eat.",
            ["Apples, pears, etc. are fruit.", "Bread, etc.", "We eat."],
        ),
        ('He said "Stop." Then (so it went.) Nothing.', ['He said "Stop."', "Then (so it went.)", "Nothing."]),
        ("Version 1.2.3 runs on example.com. It is fast.", ["Version 1.2.3 runs on example.com.", "It is fast."]),
        ("Wait ... what? Yes.", ["Wait ... what?", "Yes."]),
        ("“Why?” she asked. “Because.”", ["“Why?” she asked.", "“Because.”"]),
        ("今天天气很好。我们去公园！你来吗？", ["今天天气很好。", "我们去公园！", "你来吗？"]),
        ("「行く。」と彼は言った。終わり", ["「行く。」", "と彼は言った。", "終わり"]),
        ("پہلا جملہ۔ دوسرا جملہ۔", ["پہلا جملہ۔", "دوسرا جملہ۔"]),
        ("", []),
    ],
)
def test_a_paragraph_is_split_where_its_sentences_end(text: str, found: list[str]) -> None:
    assert list(split(text)) == found


MARKDOWN = """
# The heading. Not a sentence

![badge](https://example.com/x.svg) [![ci](a.svg)](b)

The first sentence has a [link](https://example.com) and runs
over two lines. <b>The second</b> is short.

```python
code = "Not this. Nor this."
```

Underlined
----------

- An item of a list.
1. A numbered item.

| a table | of cells. |
|---------|-----------|

    indented code. No prose.

>>> print("a prompt. No prose")

The last one has a [link that
ends](https://example.com/there) on another line.
"""


def test_prose_is_what_is_left_of_markdown() -> None:
    assert list(sentences(MARKDOWN)) == [
        "The first sentence has a link and runs over two lines.",
        "The second is short.",
        "An item of a list.",
        "A numbered item.",
        "The last one has a link that ends on another line.",
    ]


def test_prose_is_what_is_left_of_restructured_text() -> None:
    headings = "=====\nTitle\n=====\n\nTitle two\n~~~~~~~~~\n"
    rest = ".. note:: Not this.\n\n:field: nor this.\n\nmean     A row. Of a table.\n\nSee `there <x>`_. Yes.\n"
    assert list(sentences(headings + rest)) == ["See there.", "Yes."]


def test_a_text_without_prose_gives_its_lines() -> None:
    lines = ["# Only", "## Headings", "```", "and code", "```"]
    assert list(sentences("\n".join(lines))) == lines


def test_the_off_topic_sentence_is_not_chosen() -> None:
    chosen = summary(BRIDGES)
    assert "soup" not in chosen
    assert chosen.startswith("A suspension bridge hangs its deck")


def test_the_second_sentence_does_not_repeat_the_first() -> None:
    said = "The river floods the valley in spring. "
    again = "In spring the river floods the valley. The valley is flooded by the river in spring. "
    other = ["Farmers in the valley plant rice after the flood.", "The rice is sold in the city."]
    first, second = split(summary(said + again + " ".join(other)))
    assert first not in other
    assert second in other


@pytest.mark.parametrize("module", STANDARD_LIBRARY)
def test_real_text_gives_two_of_its_sentences_in_order(module: str) -> None:
    body = inspect.getdoc(importlib.import_module(module))
    assert body
    of_text = list(sentences(body))
    chosen = summary(body, module)
    pairs = [(a, b) for i, a in enumerate(of_text) for b in of_text[i + 1 :] if f"{a} {b}" == chosen]
    assert len(pairs) == 1
    assert all(sentence in collapsed(body) for sentence in pairs[0])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", "A title"),
        (" \n\t ", "A title"),
        ("Only one sentence here.", "Only one sentence here."),
        ("The first one. The second one.", "The first one. The second one."),
        ("Same again. Same again. Same again.", "Same again."),
        ("no stop at all", "no stop at all"),
    ],
)
def test_texts_with_less_than_two_sentences(body: str, expected: str) -> None:
    assert summary(body) == expected


def test_nothing_at_all_gives_nothing() -> None:
    assert summary("", "") == ""


def test_a_title_stands_in_for_the_body_at_a_summarys_length() -> None:
    assert summary("", "word " * 2_000) == ("word " * (SENTENCE_CHARACTERS_MAX // 5)).strip() + "…"


LONGEST = {
    "one line": "word " * (BODY_BYTES_MAX // 5),
    "one word": "x" * BODY_BYTES_MAX,
    "stops": "." * BODY_BYTES_MAX,
    "short sentences": "A b. " * (BODY_BYTES_MAX // 5),
    "sentences": " ".join(f"Sentence {n} speaks of the sea and of {n} ships." for n in range(BODY_BYTES_MAX // 60)),
    "lines": "a\n" * (BODY_BYTES_MAX // 2),
    "CJK": "天气很好。" * (BODY_BYTES_MAX // 15),
    "emoji": "😀" * (BODY_BYTES_MAX // 4),
    "brackets": "[x](" * (BODY_BYTES_MAX // 4),
    "comments": "<!--" * (BODY_BYTES_MAX // 4),
    "fences": "```\n" * (BODY_BYTES_MAX // 4),
}


@pytest.mark.parametrize("body", LONGEST.values(), ids=LONGEST.keys())
def test_the_longest_bodies_take_two_seconds_of_processor_at_most(body: str) -> None:
    summary(BRIDGES)  # the model is loaded
    began = time.process_time()
    chosen = summary(body)
    assert time.process_time() - began < 2.0
    assert len(chosen) <= 2 * (SENTENCE_CHARACTERS_MAX + 1) + 1


@settings(deadline=None, max_examples=200)
@given(title=st.text(max_size=50), body=st.text())
@example(title="", body="\x1c\x85\u2028. \u3000")
@example(title="", body="```")
@example(title="t", body="[](). ![](a). <b>.</b>")
def test_any_text_gives_a_summary_within_bounds(title: str, body: str) -> None:
    chosen = summary(body, title)
    assert len(chosen) <= 2 * (SENTENCE_CHARACTERS_MAX + 1) + 1
    assert chosen == summary(body, title)
    assert chosen or not (collapsed(title) and not collapsed(body))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(st.sampled_from("abcXYZ .!?。\n-#*`"), max_size=40), max_size=20))
def test_sentences_lose_no_word_of_plain_paragraphs(lines: list[str]) -> None:
    paragraph = collapsed(" ".join(lines))
    assert "".join(split(paragraph)).replace(" ", "") == paragraph.replace(" ", "")


def test_threads_share_one_model_and_agree() -> None:
    barrier = threading.Barrier(8)

    def one(_: int) -> tuple[int, str]:
        barrier.wait()
        return id(embedder()), summary(BRIDGES)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(one, range(8)))) == 1


def test_a_vector_does_not_depend_on_its_neighbours_in_the_batch() -> None:
    embed = embedder()
    texts = ["a river", "", "a much longer text about rivers and the sea that they run to", "河流"]
    together = embed(texts)
    assert together.shape == (4, DIMENSIONS)
    assert all((embed([text])[0] == row).all() for text, row in zip(texts, together, strict=True))
    assert not together[1].any()


def document(body: str) -> DocumentSaved:
    return DocumentSaved("doc-1", "ann", 1, "Bridges", body, datetime.now(UTC))


def test_the_reader_returns_the_row() -> None:
    effect = asyncio.run(summarize(document(BRIDGES), make_summarizer(), Context(idempotency_key="any")))
    assert effect == Upsert(
        key="doc-1",
        value={"summary": summary(BRIDGES), "model": "extractive-wordllama-l2_supercat-256", "tokens": 0},
    )


@pytest.mark.parametrize(("body", "what"), [("a\0b", "NUL"), ("half \ud83d pair", "surrogate")])
def test_text_that_cannot_be_stored_is_refused_for_good(body: str, what: str) -> None:
    with pytest.raises(Reject, match=f"body holds .*{what}"):
        asyncio.run(summarize(document(body), make_summarizer(), Context(idempotency_key="any")))
