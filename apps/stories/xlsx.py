"""Rows of an Excel workbook (.xlsx), by zipfile and expat: all that is needed of the format (ECMA-376, part 1, §18).

Read are texts, numbers, truth values and results of formulas, as text. Formats are not: a date in a cell is the number
of days that Excel keeps.
"""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from xml.parsers import expat

from corpora.foundation.errors import DataError

NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?")
ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
LARGEST_PART = 1 << 30
"""Bytes of the largest part that is unpacked: a workbook of a million articles has less, a zip bomb has more."""
BLOCK = 1 << 16
LAST_COLUMN = 16_384  # of Excel itself


@dataclass
class _Element:
    """An XML element; names are without their namespaces, of which the format has two variants."""

    name: str
    attributes: dict[str, str]
    children: list["_Element"] = field(default_factory=list)
    text: str = ""


def read_sheet(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a workbook's first sheet that hold anything: number, from 1, and the cells' texts.

    Raises:
        DataError: the file is missing or is no workbook.
    """
    try:
        with zipfile.ZipFile(path) as book:
            names = book.namelist()
            shared = "xl/sharedStrings.xml"
            texts = [_text_of(element) for element in _elements(book, shared, "si")] if shared in names else []
            number = 0
            for row in _elements(book, _first_sheet(book), "row"):
                number = int(row.attributes.get("r") or number + 1)
                cells = _cells(row, texts)
                if any(cells):
                    yield number, cells
    except (zipfile.BadZipFile, expat.ExpatError, LookupError, ValueError, RuntimeError, StopIteration) as error:
        # A legacy .xls, a file that Excel encrypted, and a truncated download all end here.
        raise DataError(path, f"not an Excel workbook ({error})", "export it again as .xlsx or .csv") from error
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error


def _elements(book: zipfile.ZipFile, part: str, name: str) -> Iterator[_Element]:
    """Yield the elements of a part that have a name, each when it is complete."""
    if book.getinfo(part).file_size > LARGEST_PART:
        raise ValueError(f"{part} unpacks to more than 1 GiB")
    open_elements: list[_Element] = []
    complete: list[_Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        local = tag.rpartition(" ")[2]
        if open_elements or local == name:
            element = _Element(local, {key.rpartition(" ")[2]: value for key, value in attributes.items()})
            if open_elements:
                open_elements[-1].children.append(element)
            open_elements.append(element)

    def end(_tag: str) -> None:
        if open_elements:
            element = open_elements.pop()
            if not open_elements:
                complete.append(element)

    def add_text(text: str) -> None:
        if open_elements:
            open_elements[-1].text += text

    def refuse(*_: object) -> None:
        # No part of a workbook may have one (ECMA-376, part 2, §8.1), and entities are how XML bombs are made.
        raise ValueError(f"{part} has a document type")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = add_text, refuse
    with book.open(part) as file:
        while block := file.read(BLOCK):
            parser.Parse(block, False)
            yield from complete
            complete.clear()
    parser.Parse(b"", True)
    yield from complete


def _first_sheet(book: zipfile.ZipFile) -> str:
    sheet = next(_elements(book, "xl/workbook.xml", "sheet"))
    relations = _elements(book, "xl/_rels/workbook.xml.rels", "Relationship")
    target = next(
        element.attributes["Target"] for element in relations if element.attributes["Id"] == sheet.attributes["id"]
    )
    return target.lstrip("/") if target.startswith("/") else str(PurePosixPath("xl", target))


def _text_of(element: _Element) -> str:
    """Join the runs of a text; readings that stand above the characters (rPh) are not part of it."""
    if element.name == "t":
        # Excel writes a control character as _x000D_.
        return ESCAPED.sub(lambda found: chr(int(found[1], 16)), element.text)
    return "".join(_text_of(child) for child in element.children if child.name != "rPh")


def _cells(row: _Element, texts: list[str]) -> list[str]:
    cells: list[str] = []
    for cell in row.children:
        # Empty cells are left out of the file, and so may be the references of those that follow each other.
        place = _column(cell.attributes["r"]) if "r" in cell.attributes else len(cells)
        cells.extend([""] * (place - len(cells)))
        cells.append(_cell_text(cell, texts))
    return cells


def _column(reference: str) -> int:
    """Return the number of a cell's column, from 0: `AB12` is in column 27."""
    number = 0
    for letter in reference.rstrip("0123456789"):
        number = 26 * number + ord(letter) - ord("A") + 1
    if not 0 < number <= LAST_COLUMN:
        raise ValueError(f"cell '{reference}' has no place")
    return number - 1


def _cell_text(cell: _Element, texts: list[str]) -> str:
    value = next((child.text for child in cell.children if child.name == "v"), "")
    match cell.attributes.get("t", "n"):
        case "inlineStr":
            return _text_of(cell)
        case "s":
            return texts[int(value)]
        case "b":
            return "TRUE" if value == "1" else "FALSE"
        case "e":
            return ""
        case "n" if NUMBER.fullmatch(value) and abs(float(value)) < 1 << 53 and float(value).is_integer():
            return str(int(float(value)))  # numbers are doubles: 20210601 may be written 2.0210601E7
    return value
