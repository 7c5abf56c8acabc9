"""The demo's documents: real, many, and such that the API takes them."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import pytest

from streams.api.models import NewDocument
from streams.lab.corpus import docstring, texts


def test_there_are_hundreds_of_packages_and_modules_each_once() -> None:
    found = texts()
    ids = [text.document_id for text in found]
    assert len(ids) == len(set(ids)) >= 200
    assert {"package:distributary", "package:psycopg", "module:argparse", "module:concurrent.futures"} <= set(ids)
    assert all(text.body for text in found if text.document_id.startswith("module:"))


def test_the_api_takes_each() -> None:
    for text in texts():
        NewDocument(document_id=text.document_id, owner_id="demo", title=text.title, body=text.body)


def test_no_private_module_and_no_test_is_among_them() -> None:
    names = [text.document_id.removeprefix("module:").split(".") for text in texts() if text.document_id[0] == "m"]
    assert not [name for name in names if {"test", "tests", "idlelib"} & set(name) or any(w[0] == "_" for w in name)]


def test_a_docstring_is_what_python_takes_it_for() -> None:
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-d]*.py")):
        assert docstring(path) == (ast.get_docstring(ast.parse(path.read_bytes())) or ""), path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""One."""', "One."),
        ('# a comment\n\n"""One\n   two\n"""\nimport os\n', "One\ntwo"),
        ('r"""A \\d."""\n', "A \\d."),
        ('"one " "two"\n', "one two"),
        ("import os\n'no'\n", ""),
        ("b'bytes'\n", ""),
        ("if True:\n    pass\n", ""),
        ("", ""),
        ('"""never ends', ""),
        ("print 'Python 2'", ""),
    ],
)
def test_only_the_first_statement_counts(source: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert docstring(path) == expected


def test_a_file_that_is_no_text_has_none(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_bytes(b'"""\xff\xfe"""')
    assert docstring(path) == ""
