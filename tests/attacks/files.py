"""Attacks by files of articles, archives, tables, compressed text, cells of a leaderboard, stories and settings."""

import gzip
import io
import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from apps.clustering import main as find_stories
from apps.demo_pages.inputs import read_title_file, read_upload
from apps.summarize import main as summarize
from corpora.build import main as build
from downstream.finetuning.result import Result
from eval.cells.archive import restore
from eval.run_all import main as leaderboard
from tests.attacks.attack import Attack, Entry

DEEP = "[" * 1_000_000
SENTENCE = "벼리시 의회가 본회의에서 예산 37억 원을 의결했다고 21일 밝혔다."
ARTICLE = {"title": "예산 의결", "text": f"{SENTENCE} 주민들은 반겼다."}
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"

# ---- what is attacked ----------------------------------------------------------------------------------------------


def summaries(path: Path, out: Path) -> int:
    return summarize([str(path), "--out", str(out / "summaries.jsonl")])


def printed(path: Path, _out: Path) -> int:
    return summarize([str(path)])


def corpus(path: Path, out: Path) -> int:
    return build([str(path), "--out", str(out / "corpus")])


def stories(path: Path, out: Path) -> int:
    return find_stories([str(path), "--out", str(out / "stories"), "--model", "letters"])


def upload(path: Path, _out: Path) -> None:
    read_upload("articles", path.name, path.read_bytes())


def titles(path: Path, _out: Path) -> None:
    read_title_file(path.name, path.read_bytes())


def merged(path: Path, out: Path) -> int:
    return leaderboard(["--merge", str(path), "--out", str(out / "board")])


def restored(path: Path, out: Path) -> None:
    restore(path, out / "cells")


# ---- articles and compressed text ----------------------------------------------------------------------------------

Make = Callable[[Path], Path]


def write(name: str, content: bytes | Callable[[], bytes]) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content())
        return path

    return make


def line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def packed(pattern: bytes, size: int) -> bytes:
    """Return gzip of a repeated pattern, without holding it unpacked."""
    out = zlib.compressobj(9, wbits=31)
    block = pattern * ((1 << 20) // len(pattern))
    return b"".join(out.compress(block) for _ in range(size >> 20)) + out.flush()


def zstandard() -> bytes:
    sink = io.BytesIO()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(1 << 7):
            stream.write(b"a" * (1 << 20))
        stream.flush()
        return sink.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def many_members() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for number in range(100_001):
            archive.writestr(zipfile.ZipInfo(f"{number}.txt"), b"")
    return stream.getvalue()


def workbook(sheet: str, strings: str = "", doctype: str = "") -> bytes:
    """Return an xlsx of one sheet."""
    relation = f'<Relationship Id="r1" Type="{OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r1" Type="{OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets><sheet name="a" sheetId="1" '
        'r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">{relation}</Relationships>',
        "xl/worksheets/sheet1.xml": f'{doctype}<worksheet xmlns="{MAIN}"><sheetData>{sheet}</sheetData></worksheet>',
        "xl/sharedStrings.xml": f'<sst xmlns="{MAIN}">{strings}</sst>',
    }
    return zipped({name: content.encode() for name, content in parts.items()})


HEADER = '<row r="1"><c r="A1" t="inlineStr"><is><t>본문</t></is></c></row>'


LAST_CELL = '<row r="{0}"><c r="XFD{0}"><v>1</v></c></row>'


def breaks() -> bytes:
    cell = "가나다라 마바사.\n" + "\n" * (1 << 20)
    return workbook(f'{HEADER}<row r="2"><c r="A2" t="inlineStr"><is><t xml:space="preserve">{cell}</t></is></c></row>')


def article_attacks() -> list[Attack]:
    """Return attacks by files of articles."""
    both: tuple[Entry, ...] = (summaries, corpus)
    harmless = (0, 1)
    return [
        Attack(
            "gzip that unpacks to 128 MB",
            write("a.jsonl.gz", lambda: packed(b"a", 1 << 27)),
            both,
            "times its size",
            (1, 2),
        ),
        Attack(
            "gzip of bad records",
            write("a.jsonl.gz", lambda: packed(b"{}\n", 1 << 24)),
            (stories, corpus),
            codes=(1, 2),
            max_s=5,
        ),
        Attack("zstd that unpacks to 128 MB", write("a.jsonl.zst", zstandard), both, "times its size", (1, 2)),
        Attack(
            "gzip that is cut off",
            write("a.jsonl.gz", lambda: gzip.compress(line(ARTICLE) * 99)[:60]),
            both,
            codes=(1, 2),
        ),
        Attack(
            "a zip that unpacks to 64 MB",
            write("a.zip", lambda: zipped({"a.txt": b"a" * (1 << 26)})),
            both,
            codes=(1, 2),
        ),
        Attack("a zip of a hundred thousand files", write("a.zip", many_members), (printed,), "members", max_s=8),
        Attack(
            "a zip with a way up",
            write("a.zip", lambda: zipped({"../../up.jsonl": line(ARTICLE)})),
            both,
            says="nothing to read in this archive",
        ),
        Attack(
            "a zip in which a root is named",
            write("a.zip", lambda: zipped({"/tmp/x.jsonl": line(ARTICLE)})),
            both,
            codes=harmless,
        ),
        Attack(
            "a document of Hancom that unpacks to 128 MB",
            write("a.hwpx", lambda: zipped({"Contents/section0.xml": b"a" * (1 << 27)})),
            both,
            codes=(1, 2),
        ),
        Attack("JSON a million deep", write("a.json", DEEP.encode()), both, "not valid JSON", (1, 2)),
        Attack("a record a million deep", write("a.jsonl", (DEEP + "\n").encode()), both, codes=(1, 2)),
        Attack(
            "a number of five thousand digits",
            write("a.json", b"[" + b"9" * 5_000 + b"]"),
            both,
            "not valid JSON",
            (1, 2),
        ),
        Attack("a line of sixteen megabytes", write("a.jsonl", b'{"text": "' + b"a" * (1 << 24)), both, codes=(1, 2)),
        Attack("brackets in a line", write("a.jsonl", b"[],[" * (1 << 20)), both, codes=(1, 2)),
        Attack(
            "a stray quotation mark",
            write("a.csv", f'title,text\n"x,{SENTENCE}\ny,{SENTENCE}\n'.encode()),
            (summaries,),
            codes=harmless,
        ),
        Attack(
            "quotation marks without end",
            write("a.csv", b'title,text\n"' + b'a,"b\n' * 300),
            (summaries,),
            codes=(0, 1, 2),
            max_s=3,
        ),
        Attack("a byte that is no text", write("a.jsonl", line(ARTICLE) + b'{"text": "\xff"}\n'), both, codes=harmless),
        Attack("zero bytes", write("a.txt", b"\0" * 100_000), both, codes=(0, 1, 2), max_s=3),
        Attack(
            "a megabyte of line breaks",
            write("a.jsonl", line({"text": SENTENCE + "\n" * (1 << 20)})),
            (summaries,),
            codes=harmless,
        ),
        Attack(
            "a megabyte of one bracket",
            write("a.jsonl", line({"text": "(" * (1 << 20)})),
            (summaries,),
            codes=harmless,
            max_s=3,
        ),
        Attack(
            "a megabyte of one quotation mark",
            write("a.jsonl", line({"text": "“" * (1 << 20)})),
            (summaries,),
            codes=harmless,
            max_s=3,
        ),
        Attack(
            "markup in an article",
            write("a.jsonl", line({"title": "<script>alert(1)</script>", "text": SENTENCE})),
            (stories,),
            codes=(0, 1, 2),
            max_s=3,
        ),
        Attack("parquet that is none", write("a.parquet", b"PAR1" + b"\xff" * 100 + b"PAR1"), both, "Parquet", (1, 2)),
        Attack("arrow that is none", write("a.arrow", b"\xff" * 64), both, codes=(1, 2)),
        Attack("a million line breaks in a cell", write("a.xlsx", breaks), (summaries, upload), codes=(0, 1, 2)),
        Attack(
            "a million empty cells in a row",
            write("a.xlsx", lambda: workbook(f'{HEADER}<row r="2">{"<c/>" * 1_000_000}</row>')),
            (summaries, titles),
            "has a cell in row",
        ),
        Attack(
            "six hundred rows to the last column",
            write("a.xlsx", lambda: workbook(HEADER + "".join(map(LAST_CELL.format, range(2, 602))))),
            (summaries, titles),
            "has a cell in row",
        ),
        Attack(
            "a million shared strings",
            write("a.xlsx", lambda: workbook(HEADER, "<si><t>a</t></si>" * 1_600_000)),
            (summaries, titles),
            codes=(1, 2),
            max_s=3,
        ),
        Attack(
            "entities of its own",
            write("a.xlsx", lambda: workbook(HEADER, doctype='<!DOCTYPE x [<!ENTITY a "b">]>')),
            (summaries, upload),
            "document type",
        ),
        Attack(
            "a sheet that is no XML", write("a.xlsx", lambda: workbook("<row")), (summaries, upload), "workbook", (1, 2)
        ),
        Attack(
            "a page of entities", write("a.html", b"<p>" + b"&lt;" * 1_000_000), (summaries,), codes=(0, 1), max_s=6
        ),
        Attack(
            "an agency's XML with entities",
            write("a.xml", b'<!DOCTYPE a [<!ENTITY x "y">]><nitf><body>&x;</body></nitf>'),
            both,
            codes=(1, 2),
        ),
    ]


# ---- leaderboards --------------------------------------------------------------------------------------------------


def cell(**changes: Any) -> dict[str, Any]:
    """Return a cell of two examples, half of them right."""
    result = Result(
        schema=1,
        model="a",
        task="nsmc-sample",
        split="test",
        seed=0,
        metrics={"accuracy": 0.5},
        num_examples=2,
        data_sha256="0",
        recipe_sha256="0",
        recipe={},
        train_s=1.0,
        eval_s=1.0,
        device="cpu",
        environment={"finished": "2026-01-01T00:00:00+00:00"},
        predictions=["positive", "positive"],
        columns={"accuracy": [[1.0], [0.0]]},
    )
    return result.model_dump(by_alias=True) | changes


def board(value: dict[str, Any], kind: str = "results", name: str = "nsmc-sample/a") -> Make:
    def make(folder: Path) -> Path:
        path = folder / "board" / kind / name / "seed-0.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(value))
        return folder / "board"

    return make


def failed(**changes: Any) -> dict[str, Any]:
    return {
        "task": "nsmc-sample",
        "model": "a",
        "seed": 0,
        "status": "failed",
        "reason": "",
        "at": "2026-01-01",
    } | changes


def tar(*members: tuple[str, bytes, bytes]) -> bytes:
    """Return a tar.xz of members by name, kind and content, which is the target of a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz") as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(content)
            else:
                info.linkname = content.decode()
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def tar_bomb() -> bytes:
    compressor = lzma.LZMACompressor(preset=1)
    info = tarfile.TarInfo("results/a")
    info.size = 1 << 27
    block = b"\0" * (1 << 20)
    head = compressor.compress(info.tobuf())
    return head + b"".join(compressor.compress(block) for _ in range(1 << 7)) + compressor.flush()


def wide_window() -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28, "preset": 0}]
    return lzma.compress(b"\0" * (1 << 20), format=lzma.FORMAT_XZ, filters=filters)


def board_attacks() -> list[Attack]:
    """Return attacks by cells and archives of cells."""
    file, link, device = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE
    cells = [
        ("an edited score", board(cell(metrics={"accuracy": 0.99})), ""),
        ("a score without its digest", board(cell() | {"digest": "0" * 64}), ""),
        ("a date that is none", board(cell(environment={"finished": "yesterday"})), ""),
        ("a score that is NaN", board(cell(metrics={"accuracy": float("nan")})), ""),
        ("a time beyond all numbers", board(cell(train_s=10.0**300, eval_s=float("inf"))), ""),
        ("a cell of another model", board(cell(model="b")), ""),
        ("a cell a million deep", write_board(DEEP), ""),
        ("a failure with a root for a task", board(failed(task="/abs"), "missing"), "no name of a task"),
        ("a failure with a way up", board(failed(task="../.."), "missing"), "no name of a task"),
        ("a failure whose model leads up", board(failed(model=".."), "missing"), "no name of a task"),
        ("a failure without a date", board(failed(at="never"), "missing"), "not the record of a failed cell"),
    ]
    # A merge writes the page with its charts.
    attacks = [Attack(name, make, (merged,), says, (1, 2), max_s=8) for name, make, says in cells]
    up = json.dumps(failed(task="../..")).encode()
    archives = [
        ("cells that unpack to 128 MB", tar_bomb, "unpacks to more"),
        ("cells with a dictionary of 256 MB", wide_window, "not a readable archive"),
        ("cells with a way up", lambda: tar(("../../up.json", file, b"{}")), "not a readable archive"),
        ("cells with a link", lambda: tar(("results", link, b"/etc")), "neither a file nor a folder"),
        ("cells with a device", lambda: tar(("results", device, b"")), "neither a file nor a folder"),
        ("cells of a task elsewhere", lambda: tar(("missing/a/b/seed-0.json", file, up)), "no name of a task"),
        ("cells that are cut off", lambda: tar(("results/a", file, b"a" * 5_000))[:100], "not a readable archive"),
    ]
    return attacks + [Attack(name, write("cells.tar.xz", make), (restored,), says) for name, make, says in archives]


def write_board(text: str) -> Make:
    def make(folder: Path) -> Path:
        path = folder / "board" / "results" / "nsmc-sample" / "a" / "seed-0.json"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return folder / "board"

    return make
