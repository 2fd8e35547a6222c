"""Checks of a reader of a file format: records, bad bytes, and how documents come out of it.

check_reader(READER, Path("example.abc"))
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from corpora.characters import nfc
from corpora.foundation.checks import CheckResult, Checks, NotApplicableError, OnFail
from corpora.foundation.errors import DataError
from corpora.readers.fields import candidates
from corpora.readers.records import FORMATS, FileReader, Record

READER_CHECKS = Checks("reader")


@dataclass(frozen=True)
class Subject:
    """A reader with an example of its format."""

    reader: FileReader
    example: Path

    def records(self, path: Path | None = None) -> list[Record]:
        """Read a file, by default the example."""
        return list(self.reader.read(path or self.example))

    @contextmanager
    def copy(self, name: str = "copy") -> Iterator[Path]:
        """Yield a copy of the example in a folder of its own."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}{self.reader.suffix}"
            shutil.copyfile(self.example, path)
            yield path


def check_reader(reader: FileReader, example: Path, *, on_fail: OnFail = "raise") -> list[CheckResult]:
    """Check a reader on a small file without bad records.

    Args:
        reader: of a plug-in, or `FileReader(".jsonl", read_records)` for one of ours.
        example: a file of the format with two records or more, which have a text.
        on_fail: `raise` at the first fault, `warn`, or `return`.

    Raises:
        CheckFailedError: a check failed.
    """
    return READER_CHECKS.run(Subject(reader, Path(example)), reader.suffix, on_fail)


def _refused_or_bad(subject: Subject, content: bytes) -> None:
    """Assert that a damaged file is a DataError, or has records that say what is wrong, or none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{subject.reader.suffix}"
        path.write_bytes(content)
        try:
            records = subject.records(path)
        except DataError as error:
            assert path.name in error.where, f"the message does not name the file: {error}"
            return
        for record in records:
            assert record.error is None or isinstance(record.error, DataError)


# --- the reader -------------------------------------------------------------------------------------------------------


@READER_CHECKS.add
def suffix_is_one(subject: Subject) -> None:
    """The suffix begins with a dot and is in lower case."""
    suffix = subject.reader.suffix
    assert suffix.startswith("."), suffix
    assert suffix == suffix.lower() == Path(f"a{suffix}").suffix, suffix


@READER_CHECKS.add
def suffix_is_not_taken(subject: Subject) -> None:
    """A plug-in does not replace a format of ours."""
    is_ours = subject.reader.read.__module__.startswith("corpora.")
    assert is_ours or subject.reader.suffix not in FORMATS, subject.reader.suffix


@READER_CHECKS.add
def suffix_is_no_compression(subject: Subject) -> None:
    """The suffix is not that of a compression."""
    assert subject.reader.suffix not in {".gz", ".zst", ".xz", ".bz2"}


@READER_CHECKS.add
def example_has_the_suffix(subject: Subject) -> None:
    """The example is a file of the format."""
    assert subject.example.suffix.lower() == subject.reader.suffix
    assert subject.example.is_file()


@READER_CHECKS.add
def reading_is_an_iterator(subject: Subject) -> None:
    """Records come one at a time: a file may be larger than the memory."""
    found = subject.reader.read(subject.example)
    assert iter(found) is iter(found), f"a {type(found).__name__}"


# --- records ----------------------------------------------------------------------------------------------------------


@READER_CHECKS.add
def there_are_records(subject: Subject) -> None:
    """The example has two records or more."""
    assert len(subject.records()) >= 2


@READER_CHECKS.add
def records_are_records(subject: Subject) -> None:
    """Everything that comes is a Record."""
    assert all(isinstance(record, Record) for record in subject.records())


@READER_CHECKS.add
def records_are_good(subject: Subject) -> None:
    """No record of the example is bad."""
    assert [str(record.error) for record in subject.records() if record.error is not None] == []


@READER_CHECKS.add
def records_say_where(subject: Subject) -> None:
    """`where` is the path, perhaps with a member of an archive, and a number."""
    for record in subject.records():
        path, _, number = record.where.rpartition(":")
        assert path.startswith(str(subject.example)), record.where
        assert number.isdecimal(), record.where


@READER_CHECKS.add
def places_are_unique(subject: Subject) -> None:
    """No two records have the same place."""
    places = [record.where for record in subject.records()]
    assert len(set(places)) == len(places)


@READER_CHECKS.add
def places_ascend(subject: Subject) -> None:
    """Records come in the order of the file."""
    numbers = [int(record.where.rpartition(":")[2]) for record in subject.records()]
    assert numbers == sorted(numbers)


@READER_CHECKS.add
def raw_is_text(subject: Subject) -> None:
    """`raw` is a text, for lists of bad records."""
    assert all(isinstance(record.raw, str) for record in subject.records())


@READER_CHECKS.add
def columns_are_texts(subject: Subject) -> None:
    """Names of columns are texts that are not blank."""
    for record in subject.records():
        assert all(isinstance(name, str) and name.strip() for name in record.values), record.where


@READER_CHECKS.add
def columns_are_composed(subject: Subject) -> None:
    """Names of columns are in NFC, so that `본문` is found."""
    for record in subject.records():
        assert all(name == nfc(name) for name in record.values), record.where


@READER_CHECKS.add
def good_records_have_values(subject: Subject) -> None:
    """A good record has values."""
    assert all(record.values for record in subject.records() if record.error is None)


@READER_CHECKS.add
def a_text_is_found(subject: Subject) -> None:
    """A column is recognized as the text or the title, without `fields`."""
    for record in subject.records():
        found = candidates(tuple(record.values))
        assert found["text"] or found["title"], f"{record.where}: {', '.join(record.values)}"


@READER_CHECKS.add
def korean_survives(subject: Subject) -> None:
    """Hangul is decoded, not replaced."""
    texts = " ".join(str(value) for record in subject.records() for value in record.values.values())
    assert any("가" <= character <= "힣" for character in texts), "no Hangul in the example"
    assert "\ufffd" not in texts, "U+FFFD: bytes that were not decoded"


@READER_CHECKS.add
def values_have_no_nul(subject: Subject) -> None:
    """No value has NUL characters, which databases refuse."""
    assert all("\0" not in str(value) for record in subject.records() for value in record.values.values())


@READER_CHECKS.add
def reading_is_deterministic(subject: Subject) -> None:
    """Reading twice gives the same records."""
    first, second = subject.records(), subject.records()
    assert [(r.where, r.values) for r in first] == [(r.where, r.values) for r in second]


@READER_CHECKS.add
def place_of_the_file_does_not_matter(subject: Subject) -> None:
    """A copy in another folder, with blanks and Hangul in its name, has the same values."""
    with subject.copy("기사 모음 1") as path:
        assert [record.values for record in subject.records(path)] == [record.values for record in subject.records()]


@READER_CHECKS.add
def file_is_not_changed(subject: Subject) -> None:
    """Reading changes no byte."""
    with subject.copy() as path:
        before = path.read_bytes()
        subject.records(path)
        assert path.read_bytes() == before
        assert [found.name for found in path.parent.iterdir()] == [path.name], "files were left beside it"


@READER_CHECKS.add
def file_is_closed(subject: Subject) -> None:
    """The file is closed when all is read."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        raise NotApplicableError("this system does not list open files")
    with subject.copy() as path:
        subject.records(path)
        links = [link.readlink() for link in folder.iterdir() if link.is_symlink()]
        assert path.resolve() not in links


@READER_CHECKS.add
def file_is_closed_early(subject: Subject) -> None:
    """The file is closed when only the first record is taken."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        raise NotApplicableError("this system does not list open files")
    with subject.copy() as path:
        found = subject.reader.read(path)
        assert len(list(islice(found, 1))) == 1
        del found
        links = [link.readlink() for link in folder.iterdir() if link.is_symlink()]
        assert path.resolve() not in links


# --- bad files --------------------------------------------------------------------------------------------------------


@READER_CHECKS.add
def missing_file_is_a_data_error(subject: Subject) -> None:
    """A missing file is a DataError that names it."""
    _is_data_error(subject, subject.example.with_name(f"missing{subject.reader.suffix}"))


@READER_CHECKS.add
def folder_is_a_data_error(subject: Subject) -> None:
    """A folder of that name is a DataError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"folder{subject.reader.suffix}"
        path.mkdir()
        _is_data_error(subject, path)


def _is_data_error(subject: Subject, path: Path) -> None:
    try:
        subject.records(path)
    except DataError as error:
        assert path.name in error.where, str(error)
        assert "\n" not in str(error), "a message of several lines"
        return
    raise AssertionError("it was read")


@READER_CHECKS.add
def empty_file_is_refused(subject: Subject) -> None:
    """An empty file is a DataError or has no records."""
    _refused_or_bad(subject, b"")


@READER_CHECKS.add
def random_bytes_are_refused(subject: Subject) -> None:
    """Bytes that are no text raise nothing but a DataError."""
    _refused_or_bad(subject, bytes(range(256)) * 16)


@READER_CHECKS.add
def cut_file_is_reported(subject: Subject) -> None:
    """A file that breaks off raises nothing but a DataError, wherever it was cut."""
    content = subject.example.read_bytes()
    for share in (0.25, 0.5, 0.9):
        _refused_or_bad(subject, content[: int(share * len(content))])


@READER_CHECKS.add
def nul_bytes_are_reported(subject: Subject) -> None:
    """A file of NUL bytes, as a full disk leaves it, raises nothing but a DataError."""
    _refused_or_bad(subject, b"\0" * 4096)
