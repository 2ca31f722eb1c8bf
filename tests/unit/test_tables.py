"""The everyday mistakes with a data file: both readers of CSV files say what to do about them."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from quantify.dataset import columns
from quantify.errors import InputError
from quantify.properties.table import cell_of, column_index, open_table

TEXT = "age,weather,failed\n30,dry,0\n41,rain,1\n"


def by_property(path: Path) -> None:
    table = open_table(path)
    column_index(table, "weather")
    table.rows(range(table.height()))


def by_table(path: Path) -> None:
    columns.read(path).column("weather")


@pytest.fixture(params=[by_property, by_table])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bytes], InputError | None]:
    def run(content: bytes) -> InputError | None:
        path = tmp_path / "t.csv"
        path.write_bytes(content)
        try:
            request.param(path)
        except InputError as error:
            return error
        return None

    return run


def zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", "ä" * 99)
    return target.getvalue()


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_what_is_no_mistake_is_read(read: Callable[[bytes], InputError | None], ends: str, encoding: str) -> None:
    assert read(TEXT.replace("\n", ends).encode(encoding)) is None


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (TEXT.replace(",", ";").encode(), "its cells are separated by semicolons: save it with commas"),
        (TEXT.replace(",", ";").replace("dry", "1,5").encode(), "separated by semicolons"),
        (TEXT.replace(",", "\t").encode(), "separated by tabs"),
        (TEXT.replace(",", "|").encode(), "separated by bars"),
        (TEXT.replace("30", "3\r0").encode(), "cell for"),  # a line ends there
        (TEXT.replace("weather", "wind").encode(), "its columns are 'age', 'wind', 'failed'"),
        (gzip.compress(TEXT.encode()), "unpack it first, as with gzip -d"),
        (zipped(), "save the sheet as CSV"),
        (TEXT.encode("utf-16"), "save it as UTF-8"),
        (TEXT.replace("dry", "sèc").encode("latin-1"), "save the file as UTF-8"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(
    read: Callable[[bytes], InputError | None], content: bytes, hint: str
) -> None:
    error = read(content)
    assert error is not None
    assert "t.csv" in error.message
    assert hint in error.hint


@pytest.mark.parametrize("word", ["", " ", "na", "NaN", "n/a", "N/A", "null", "None", "?"])
def test_the_words_of_the_documents_for_a_missing_value(word: str) -> None:
    assert cell_of(word) is None


@pytest.mark.parametrize("word", ["0", "no", "nil", "-", "nano"])
def test_other_words_are_no_missing_value(word: str) -> None:
    assert cell_of(word) is not None
