"""Speed of `corpora.build` by stage, and what its rules find; extrapolated to 40 million articles.

    python -m benchmarks.corpus archive --data ROOT --documents 20000 --out FOLDER
    python -m benchmarks.corpus speed FOLDER --work WORK [--tasks N]
    python -m benchmarks.corpus executors FOLDER --work WORK [--tasks N]
    python -m benchmarks.corpus quality --data ROOT
    python -m benchmarks.corpus privacy --data ROOT
    python -m benchmarks.corpus copies --data ROOT --documents 20000 --work WORK

`archive` makes an archive of any size from real texts: each of its articles is a text with some sentences left out and
others of the same source put in, and one in ten is a copy, or nearly one, of an earlier article. `speed` builds it and
prints the seconds and bytes of every stage, `executors` builds it by each executor of this machine. `quality` and
`privacy` count on real texts what the rules drop and mask, `copies` which planted near-copies are found
(`benchmarks.corpus_copies`).
"""

import gzip
import itertools
import json
import random
import resource
import shutil
import string
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus_copies import measure_copies
from corpora.build import BuildConfig
from corpora.cleaning import CleaningConfig, edit
from corpora.corpus import PROGRESS, read_manifest
from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import fingerprint
from corpora.foundation.machine import cpu_name
from corpora.official import data_root
from corpora.pipeline.executors import processes, run_stage
from corpora.pipeline.plan import Build, make_plan
from corpora.pipeline.privacy import DEFAULT_KINDS, WEIGHTS, Kind, find
from corpora.pipeline.quality import MIN_CHARS, RULES, low_quality
from corpora.pipeline.stages import STAGES
from corpora.sentences import split_by_rules
from corpora.sources import find_inputs

SOURCES = (
    "press_releases_municipal.jsonl.gz",
    "boddari_wikinews.csv",
    "petitions.jsonl.gz",
    "court_rulings_kr.part1.jsonl.gz",
    "msdocs_dotnet_ko.jsonl.gz",
    "msdocs_dynamics365_ko.jsonl.gz",
    "tensorflow_docs_ko.jsonl.gz",
)
ARTICLES = SOURCES[:3]
"""What an archive is made of: texts in the style of news, and petitions."""
MOST_DOCUMENTS = 3_000
"""Of each source that `quality` and `privacy` read."""
ARTICLE_CHARS = 1_200
"""Of an article of an archive, about."""
FILE_DOCUMENTS = 4_000
COPIES, NEAR_COPIES = 0.05, 0.05
SCALE = 40_000_000
CORES = (1, 16, 256)


def texts_of(data: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield id and edited text of the documents of a source."""
    for document in read_documents(data / "corpus" / name, rejected=[]):
        yield document.id, edit(document.text, CleaningConfig())[0]


# ---- an archive ----


def make_archive(data: Path, num_documents: int, out: Path) -> None:
    """Write an archive of articles made of the sentences of real texts."""
    if out.exists():
        raise UsageError(out, "exists already", "give a new folder with --out")
    rng = random.Random(1)  # noqa: S311 - no secrets
    pools = [
        [sentence for _, text in texts_of(data, name) for line in text.split("\n") for sentence in _sentences(line)]
        for name in ARTICLES
    ]
    out.mkdir(parents=True)
    earlier: list[str] = []
    for first in range(0, num_documents, FILE_DOCUMENTS):
        with gzip.open(
            out / f"{first // FILE_DOCUMENTS:05d}.jsonl.gz", "wt", encoding="utf-8", compresslevel=1
        ) as file:
            for number in range(first, min(first + FILE_DOCUMENTS, num_documents)):
                text = _article(rng, pools, earlier)
                if rng.random() < 0.01 or len(earlier) < 100:
                    earlier.append(text)
                date = f"{2001 + number % 20}-{1 + number % 12:02d}-{1 + number % 28:02d}"
                record = {"id": f"n{number}", "title": f"{number}번째 기사", "date": date, "text": text}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _sentences(line: str) -> list[str]:
    return [sentence for words in split_by_rules(line) if len(sentence := " ".join(words)) > 10]


def _article(rng: random.Random, pools: list[list[str]], earlier: list[str]) -> str:
    """Return an article: an earlier one, one nearly the same, or a run of sentences with others between them."""
    chance = rng.random()
    if earlier and chance < COPIES + NEAR_COPIES:
        words = rng.choice(earlier).split(" ")
        if chance >= COPIES:
            words[rng.randrange(len(words))] = f"{rng.randrange(10_000)}명"
        return " ".join(words)
    pool = rng.choice(pools)
    parts: list[str] = []
    size = 0
    position = rng.randrange(len(pool))
    while size < ARTICLE_CHARS:
        sentence = rng.choice(pool) if rng.random() < 0.5 else pool[position % len(pool)]
        position += 1
        parts.append(sentence)
        size += len(sentence) + 1
    return "\n".join(" ".join(parts[k : k + 3]) for k in range(0, len(parts), 3))


# ---- speed ----


def measure_speed(archive: Path, work: Path, tasks: int, exclude: tuple[Path, ...]) -> None:
    """Build an archive, and print a row a stage in Markdown.

    A part and the whole are built: the difference is what documents cost, the rest is paid once.
    """
    config = BuildConfig(exclude=exclude)
    files = sorted(archive.glob("*.jsonl.gz"))
    _timed(files[:1], work, config, tasks)  # reads the evaluation texts, which stay in memory
    part, whole = (_timed(some, work, config, tasks) for some in (files[:1], files))
    sys.stdout.write(_speed_table(part, whole, tasks))
    sys.stdout.write(f"\n{whole.totals['num_read']:,} documents, kept {whole.totals['num_kept']:,}, ")
    sys.stdout.write(f"dropped {whole.totals['dropped']}\n")
    sys.stdout.write(f"built in {sum(whole.seconds.values()) / 60:,.1f} minutes\n")
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    sys.stdout.write(f"largest process {memory / 1024:,.0f} MB, {cpu_name()}, processes: {tasks}\n")


@dataclass(frozen=True)
class Timing:
    """A build: seconds and bytes of every stage, and the counts of the manifest."""

    seconds: dict[str, float]
    size_bytes: dict[str, int]
    totals: dict[str, Any]


def _timed(files: list[Path], work: Path, config: BuildConfig, tasks: int) -> Timing:
    shutil.rmtree(work, ignore_errors=True)
    started = time.perf_counter()
    build = Build.begin(work, make_plan(config, find_inputs(files, work, config.text_unit, config.fields)))
    seconds, sizes = {DIGESTS: time.perf_counter() - started}, {DIGESTS: 0}
    with processes(tasks) as pool:
        for stage in STAGES:
            started = time.perf_counter()
            run_stage(build, stage, pool)
            seconds[stage.name] = time.perf_counter() - started
            paths = (work / PROGRESS / stage.name).rglob("*")
            sizes[stage.name] = sum(path.stat().st_size for path in paths if path.is_file())
    return Timing(seconds, sizes, read_manifest(work).totals.model_dump())


DIGESTS = "digests of the sources"
SEQUENTIAL = frozenset({DIGESTS, "clusters", "finish"})
"""Stages of one task."""


def _speed_table(part: Timing, whole: Timing, tasks: int) -> str:
    head = (
        "stage",
        "documents/s",
        "bytes/document",
        *(f"hours, {cores} {'core' if cores == 1 else 'cores'}" for cores in CORES),
    )
    lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
    totals = [0.0] * len(CORES)
    num_documents = whole.totals["num_read"] - part.totals["num_read"]
    all_seconds = 0.0
    for name in whole.seconds:
        processes_used = 1 if name in SEQUENTIAL else tasks
        # The clock may show no difference for more documents.
        elapsed = max(whole.seconds[name] - part.seconds[name], 1e-3) * processes_used
        all_seconds += elapsed
        hours = elapsed / num_documents * SCALE / 3600
        shares = [hours / (1 if name in SEQUENTIAL else cores) for cores in CORES]
        totals = [total + share for total, share in zip(totals, shares, strict=True)]
        size = whole.size_bytes[name] / whole.totals["num_read"]
        row = (name, f"{num_documents / elapsed:,.0f}", f"{size:,.0f}", *(f"{share:,.2f}" for share in shares))
        lines.append(f"| {' | '.join(row)} |")
    size = sum(whole.size_bytes.values()) / whole.totals["num_read"]
    row = ("all", f"{num_documents / all_seconds:,.0f}", f"{size:,.0f}", *(f"{total:,.2f}" for total in totals))
    lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def measure_executors(archive: Path, work: Path, tasks: int) -> None:
    """Build an archive by each executor of this machine, and print a row each in Markdown.

    Raises:
        UsageError: two executors built different corpora.
    """
    digests: dict[str, str] = {}
    sys.stdout.write("| executor | processes | seconds | documents/s |\n| --- | ---: | ---: | ---: |\n")
    for executor, count in (("local", 1), ("local", tasks), ("datatrove", tasks)):
        shutil.rmtree(work, ignore_errors=True)
        started = time.perf_counter()
        command = [str(archive), "--out", str(work), "--executor", executor, "--tasks", str(count)]
        done = subprocess.run([sys.executable, "-m", "corpora.build", *command], check=False, capture_output=True)
        elapsed = time.perf_counter() - started
        if done.returncode:
            raise UsageError(f"corpora.build --executor {executor}", done.stderr.decode()[-300:], "see its error")
        manifest = read_manifest(work)
        digests[f"{executor} {count}"] = manifest.digest
        rate = manifest.totals.num_read / elapsed
        sys.stdout.write(f"| {executor} | {count} | {elapsed:,.0f} | {rate:,.0f} |\n")
    if len(set(digests.values())) > 1:
        raise UsageError(str(work), f"the corpora differ: {digests}", "report it")
    sys.stdout.write(f"\n{manifest.totals.num_read:,} documents, {cpu_name()}; the corpora have the same bytes\n")


# ---- quality ----


def is_other_half(id_: str) -> bool:
    """Whether a document was not looked at when the limits were chosen."""
    return int(fingerprint(id_)[:2], 16) % 2 == 1


def measure_quality(data: Path) -> None:
    """Print what each rule drops of each source, of documents that the limits were not chosen on."""
    names = list(RULES)
    sys.stdout.write(f"| source | texts of {MIN_CHARS} characters and more | dropped | {' | '.join(names)} |\n")
    sys.stdout.write("| --- |" + " ---: |" * (len(names) + 2) + "\n")
    for source in SOURCES:
        dropped: Counter[str] = Counter()
        count = 0
        for id_, text in itertools.islice(texts_of(data, source), MOST_DOCUMENTS):
            if is_other_half(id_) and len(text) >= MIN_CHARS:
                count += 1
                dropped[low_quality(text) or ""] += 1
        total = count - dropped[""]
        cells = (
            source.split(".")[0],
            f"{count:,}",
            f"{100 * total / count:.2f} %",
            *(f"{dropped[name]}" for name in names),
        )
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


# ---- privacy ----

NUM_PLANTED = 10_000
SEPARATORS = ("-", ".", " ")
COURT_CODES = ("다", "도", "누", "고합", "가단", "헌바")
CUES: dict[Kind, tuple[str, ...]] = {
    "resident_number": ("주민등록번호 ", "", "번호는 ", "("),
    "phone": ("연락처 ", "", "전화: ", "(", "문의 "),
    "account": ("국민은행 ", "계좌번호 ", "농협 ", "카카오뱅크 ", "신한은행 계좌 "),
    "card": ("카드 ", "", "카드번호 ", "("),
    "email": ("메일 ", "", "(", "이메일: "),
    "vehicle": ("", "차량 ", "차량번호 ", "번호판 "),
}


def _number(rng: random.Random, size: int) -> str:
    return "".join(rng.choice(string.digits) for _ in range(size))


def _resident(rng: random.Random) -> str:
    year, month, day = rng.randrange(1930, 2025), rng.randrange(1, 13), rng.randrange(1, 29)
    birth = f"{year % 100:02d}{month:02d}{day:02d}"
    is_foreign = rng.random() < 0.2
    century = (1 if year < 2000 else 3) + rng.randrange(2) + 4 * is_foreign
    digits = birth + str(century) + _number(rng, 5)
    if (year, month) > (2020, 9):
        last = _number(rng, 1)
    else:
        rest = sum(weight * int(digit) for weight, digit in zip(WEIGHTS, digits, strict=True)) % 11
        last = str(((13 if is_foreign else 11) - rest) % 10)
    return f"{digits[:6]}{rng.choice(('-', '-', '-', ''))}{digits[6:]}{last}"


def _phone(rng: random.Random) -> str:
    separator = rng.choice(SEPARATORS)
    match rng.randrange(6):
        case 0 | 1:
            parts = ["010", str(rng.randrange(2000, 10_000)), _number(rng, 4)]
            separator = rng.choice((*SEPARATORS, ""))
        case 2:
            area = rng.choice(("02", "031", "032", "042", "051", "053", "061", "064"))
            parts = [area, str(rng.randrange(200, 10_000)), _number(rng, 4)]
        case 3:
            parts = [rng.choice(("070", "0505")), str(rng.randrange(2000, 10_000)), _number(rng, 4)]
        case 4:
            parts = [rng.choice(("1588", "1577", "1544", "1600", "1661", "1899")), _number(rng, 4)]
            separator = "-"
        case _:
            parts = ["+82", "10", str(rng.randrange(2000, 10_000)), _number(rng, 4)]
            separator = rng.choice(("-", " "))
    return separator.join(parts)


def _card(rng: random.Random) -> str:
    digits = rng.choice("34569") + _number(rng, 14)
    double = sum(sum(divmod(int(digit) * (2 - k % 2), 10)) for k, digit in enumerate(digits))
    number = digits + str(-double % 10)
    return rng.choice(("-", " ", "")).join(number[k : k + 4] for k in range(0, 16, 4))


def _account(rng: random.Random) -> str:
    sizes = rng.choice(((6, 2, 6), (3, 3, 6), (3, 4, 4, 2), (4, 2, 7), (3, 2, 6)))
    return rng.choice(("-", "-", "")).join(_number(rng, size) for size in sizes)


def _email(rng: random.Random) -> str:
    name = "".join(rng.choice(string.ascii_lowercase + "._") for _ in range(rng.randrange(3, 12))).strip("._") or "a"
    return f"{name}{rng.randrange(100)}@{rng.choice(('press.example', 'mail.co.kr', 'news.or.kr', 'a-b.com'))}"


def _plate(rng: random.Random) -> str:
    use = rng.choice("가나다라마거너더러머버서어저고노도로모보소오조구누두루무부수우주바사아자배하허호")
    number = str(rng.randrange(10, 1000)) if rng.random() < 0.5 else f"{rng.randrange(1, 100):02d}"
    region = rng.choice(("", "", "", "서울 ", "경기"))
    return f"{region}{number}{use}{rng.choice(('', ' '))}{_number(rng, 4)}"


MAKERS = {
    "resident_number": _resident,
    "phone": _phone,
    "account": _account,
    "card": _card,
    "email": _email,
    "vehicle": _plate,
}


def measure_privacy(data: Path) -> None:
    """Plant personal data between the sentences of real texts, and count what is masked; count hits on the rest."""
    rng = random.Random(3)  # noqa: S311 - no secrets
    texts = [
        text
        for name in SOURCES
        for id_, text in itertools.islice(texts_of(data, name), MOST_DOCUMENTS)
        if is_other_half(id_) and len(text) >= MIN_CHARS
    ]
    planted: Counter[Kind] = Counter()
    masked: Counter[Kind] = Counter()
    for _ in range(NUM_PLANTED):
        kind = rng.choice(DEFAULT_KINDS)
        secret = MAKERS[kind](rng)
        cue = rng.choice(CUES[kind])
        text = rng.choice(texts)
        blanks = [k for k, character in enumerate(text) if character == " "]
        position = rng.choice(blanks) if blanks else 0
        behind = rng.choice((")", "입니다.", "로", "에", ",", "")) if "(" not in cue else ")"
        before = f"{text[:position]} {cue}"
        span = (len(before), len(before) + len(secret))
        found = find(f"{before}{secret}{behind} {text[position:].lstrip()}")
        planted[kind] += 1
        masked[kind] += any(start <= span[0] and span[1] <= end for start, end, _ in found)
    sys.stdout.write("| kind | planted | masked | share |\n| --- | ---: | ---: | ---: |\n")
    for kind in planted:
        sys.stdout.write(
            f"| {kind} | {planted[kind]:,} | {masked[kind]:,} | {100 * masked[kind] / planted[kind]:.2f} % |\n"
        )
    share = 100 * masked.total() / planted.total()
    sys.stdout.write(f"| all | {planted.total():,} | {masked.total():,} | {share:.2f} % |\n\n")
    _measure_false_hits(rng, texts)


def _lookalike(rng: random.Random) -> str:
    """Return a number that is no personal data."""
    year, month, day = rng.randrange(1900, 2030), rng.randrange(1, 13), rng.randrange(1, 29)
    letter = rng.choice("다도누두마모나라가")
    return rng.choice(
        (
            f"{year}-{month:02d}-{day:02d}",
            f"{year}. {month}. {day}. 선고 {rng.randrange(70, 100)}{letter}{rng.randrange(1, 30_000)} 판결",
            f"{rng.randrange(2000, 2025)}{rng.choice(COURT_CODES)}{rng.randrange(1, 300_000)}",
            f"{rng.randrange(1, 10**9):,}원",
            f"{rng.randrange(1, 500)}조 {rng.randrange(1, 10_000)}억 원",
            f"{rng.randrange(1, 10**8):,}명({rng.random() * 100:.1f}%)",
            f"ISBN 978-89-{rng.randrange(100, 1000)}-{rng.randrange(1000, 10_000)}-{rng.randrange(10)}",
            f"97889{_number(rng, 8)}",
            f"{year}{month:02d}{day:02d}{rng.randrange(24):02d}{rng.randrange(60):02d}00",
            f"{(born := rng.randrange(1400, 1990))}-{born + rng.randrange(1, 90)}",
        )
    )


def _measure_false_hits(rng: random.Random, texts: list[str]) -> None:
    hits: Counter[str] = Counter()
    for _ in range(NUM_PLANTED):
        number = _lookalike(rng)
        text = rng.choice(texts)
        position = text.find(" ", rng.randrange(len(text)))
        before = f"{text[:position]} " if position > 0 else ""
        result = f"{before}{number} {text[max(position, 0) :].lstrip()}"
        span = (len(before), len(before) + len(number))
        hits["hit"] += any(start < span[1] and end > span[0] for start, end, _ in find(result))
    share = 100 * hits["hit"] / NUM_PLANTED
    sys.stdout.write(
        f"dates, prices, statistics, ISBN and case numbers: {hits['hit']} of {NUM_PLANTED:,} hit ({share:.2f} %)\n"
    )


NEEDED = {"archive": ("out",), "speed": ("archive", "work"), "executors": ("archive", "work"), "copies": ("work",)}
"""Arguments that a benchmark cannot do without."""


def main(argv: list[str] | None = None) -> int:
    """Run a benchmark; see the module's docstring."""
    parser = ArgumentParser("python -m benchmarks.corpus", "Measure corpora.build.")
    parser.add_argument("what", choices=("archive", "speed", "executors", "quality", "privacy", "copies"))
    parser.add_argument("archive", nargs="?", type=Path, help="folder made by `archive`")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA")
    parser.add_argument("--documents", type=int, default=20_000, help="articles of the archive")
    parser.add_argument("--out", type=Path, help="folder of the archive")
    parser.add_argument("--work", type=Path, help="folder of the corpus that is built; it is emptied first")
    parser.add_argument("--tasks", type=int, default=1, help="processes")
    arguments = parser.parse(argv)
    for name in NEEDED.get(arguments.what, ()):
        if getattr(arguments, name) is None:
            option = "ARCHIVE" if name == "archive" else f"--{name}"
            raise UsageError(parser.prog, f"{arguments.what} without {option}", f"give the folder as {option}")
    if arguments.what == "archive":
        make_archive(data_root(arguments.data), arguments.documents, arguments.out)
    elif arguments.what == "speed":
        exclude = tuple(sorted((data_root(arguments.data)).glob("klue/*/*_dev.*")))
        measure_speed(arguments.archive, arguments.work, arguments.tasks, exclude)
    elif arguments.what == "executors":
        measure_executors(arguments.archive, arguments.work, arguments.tasks)
    elif arguments.what == "copies":
        sys.stdout.write(
            measure_copies(data_root(arguments.data), arguments.documents, arguments.work, arguments.tasks)
        )
    elif arguments.what == "quality":
        measure_quality(data_root(arguments.data))
    else:
        measure_privacy(data_root(arguments.data))
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
