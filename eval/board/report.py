"""What a report shows: figures, evidence beside them, and the texts of their cells in both written forms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from corpora.foundation.texts import Language, Texts
from corpora.overlap import MEASURES
from downstream.task import all_tasks
from eval.board.comparison import Comparison
from eval.board.disagreement import Disagreement
from eval.board.rows import CleanFigure, LeaderboardFile, NoiseFigure, Row
from eval.board.table import Board, block_of, build_board, commit_text, interval_text, percent, settings_text, signed
from eval.cells.files import NOT_MEASURED
from eval.cells.measurements import IDLE_SHARE, CurveFile
from eval.contamination.files import Pair

AGAIN = "python eval/run_all.py --from leaderboard.json --data DATA --out again"


@dataclass(frozen=True)
class Evidence:
    """What a report shows besides figures."""

    disagreements: Sequence[Disagreement] = ()
    contamination: Sequence[Pair] = ()
    curves: Sequence[CurveFile] = ()

    @property
    def touched(self) -> list[Pair]:
        """The pairs with overlapping examples."""
        return [pair for pair in self.contamination if not pair.is_clean]

    @property
    def clean(self) -> dict[str, list[Pair]]:
        """Task → its pairs without overlapping examples."""
        found: dict[str, list[Pair]] = {}
        for pair in self.contamination:
            if pair.is_clean:
                found.setdefault(pair.task, []).append(pair)
        return found


@dataclass(frozen=True)
class Report:
    """The contents of the page and of the Markdown."""

    file: LeaderboardFile
    order: Sequence[str] = ()
    """Tasks whose columns come first."""
    evidence: Evidence = field(default_factory=Evidence)

    @cached_property
    def official(self) -> Board:
        """Official tasks: what was measured here beside published figures."""
        rows = [row for row in self.file.rows if block_of(row) in {"measured", "reported"}]
        return build_board(rows, self.order)

    @cached_property
    def substitutes(self) -> Board:
        """Own tasks, substitute splits and samples, each under its own name."""
        rows = [row for row in self.file.rows if block_of(row) in {"on_other", "on_sample"}]
        return build_board(rows, self.order)

    @property
    def boards(self) -> dict[str, Board]:
        """Both tables by the key of their titles, those without lines left out."""
        found = {"official": self.official, "substitutes": self.substitutes}
        return {key: board for key, board in found.items() if board.blocks}

    @cached_property
    def ranking(self) -> dict[str, list[Row]]:
        """Task → its measured rows with a value in the ranking metric, in the order of the leaderboard."""
        found: dict[str, list[Row]] = {}
        known = all_tasks()
        for row in self.file.rows:
            is_figure = row.source == "measured" and row.value is not None and row.task in known
            if is_figure and row.metric == known[row.task].metrics[0].key:
                found.setdefault(row.task, []).append(row)
        return found

    @cached_property
    def picks(self) -> list["Pick"]:
        """The models to choose for each task, in the order of the tables.

        A task with one measured model and no published figure has none; one that nobody has measured has an empty one.
        """
        return [
            found
            for key, board in self.boards.items()
            for k, column in enumerate(board.columns)
            if column.is_ranking
            and (found := _pick(column.task, _column(board, k), is_official=key == "official")) is not None
        ]

    @cached_property
    def states(self) -> list[str]:
        """The source states that measured rows come from; `+` marks uncommitted changes."""
        commits = {commit for row in self.file.rows for commit in row.commit.split(" / ") if commit}
        return sorted(commits)

    def state_notice(self, language: Language) -> str:
        """Return a warning if the figures come from several source states or from uncommitted changes, or nothing."""
        texts = Texts(language, "report")
        if len(self.states) > 1:
            return texts("states", number=len(self.states))
        dirty = [commit_text(state) for state in self.states if state.endswith("+")]
        return texts("dirty", commit=dirty[0]) if dirty else ""

    @property
    def noised(self) -> dict[str, list[Row]]:
        """Task → its rows of `ranking` that were measured under noise."""
        noised = {task: [row for row in rows if row.noise] for task, rows in self.ranking.items()}
        return {task: rows for task, rows in noised.items() if rows}

    @property
    def cleaned(self) -> list[tuple[Row, CleanFigure]]:
        """Rows of `ranking` with each of their figures without overlapping examples."""
        return [(row, found) for rows in self.ranking.values() for row in rows for found in row.clean]

    @property
    def has_cost(self) -> bool:
        """Whether any row of `ranking` was timed."""
        return any(row.latency_ms is not None for rows in self.ranking.values() for row in rows)


@dataclass(frozen=True)
class Pick:
    """What a task's tests leave to choose from."""

    task: str
    best: tuple[Row, ...]
    """Rows of models that none beats significantly, best score first."""
    fastest: Row | None
    """The one of them with the lowest latency; None where none was timed, or only one is best."""
    is_distinguished: bool
    """Whether any model of the task is significantly worse."""
    reported: Row | None
    """The best published figure in the ranking metric; None where there is none."""
    is_official: bool
    is_all_seen: bool = False
    """Whether training text contains every evaluation example, so that no model is ranked."""

    @property
    def why_empty(self) -> str:
        """Key of the text that stands in the place of models."""
        return "pick_all_seen" if self.is_all_seen else "not_measured"


def score_of(row: Row) -> float | None:
    """Return the figure that ranks a row: that without overlapping examples where ranks are."""
    return row.clean_value if row.is_clean_subset else row.value


def _column(board: Board, number: int) -> list[Row]:
    return [row for row in board.by_column[number] if row is not None]


def _pick(task: str, column: Sequence[Row], *, is_official: bool) -> Pick | None:
    rows = [row for row in column if row.value is not None]
    published = [row for row in rows if row.source == "reported"]
    reported = max(published, key=lambda row: row.value or 0.0) if published else None
    ranked = [row for row in rows if row.rank is not None and score_of(row) is not None]
    is_all_seen = any(row.num_clean_examples == 0 for row in rows)
    if not ranked and reported is None and not is_all_seen and any(row.reason != NOT_MEASURED for row in column):
        return None
    best = sorted((row for row in ranked if row.rank and row.rank[0] == 1), key=lambda row: -(score_of(row) or 0.0))
    timed = [row for row in best if row.latency_ms is not None]
    fastest = min(timed, key=lambda row: row.latency_ms or 0.0) if len(best) > 1 and timed else None
    return Pick(task, tuple(best), fastest, len(best) < len(ranked), reported, is_official, is_all_seen)


def settings_cells(row: Row, language: Language) -> list[str]:
    """Return a row's settings, how they were chosen, and its commit as table text."""
    texts = Texts(language, "report")
    chosen = texts("by_grid", number=row.num_grid_points) if row.num_grid_points else texts("by_hand")
    settings = settings_text(row)
    return [settings or "—", chosen if settings else "—", commit_text(row.commit) or texts("unknown")]


def condition_title(found: NoiseFigure, language: Language) -> str:
    """Return the name of a noise at its level, e.g. `자모 오타 10%`."""
    texts = Texts(language, "report")
    name = texts(f"noise.{found.noise}")
    return name if found.rate == 1 else texts("noise_rate", noise=name, rate=found.rate)


def is_busy(row: Row) -> bool:
    """Whether the row was timed while the machine ran other work."""
    return row.cpu_share is not None and row.cpu_share < IDLE_SHARE


def size_text(size_bytes: int | None) -> str:
    """Return a size in decimal units."""
    if size_bytes is None:
        return "—"
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 100_000 else f"{size_bytes / 1e3:,.1f} kB"


def time_text(seconds: float, language: Language) -> str:
    """Return a duration in seconds, minutes or hours."""
    texts = Texts(language, "report")
    if seconds < 120:
        return texts("time_s", value=seconds)
    return texts("time_min", value=seconds / 60) if seconds < 7200 else texts("time_h", value=seconds / 3600)


def latency_text(milliseconds: float) -> str:
    """Return a latency in milliseconds."""
    return "< 0.01 ms" if milliseconds < 0.01 else f"{milliseconds:,.2f} ms"


def cost_cells(row: Row, language: Language) -> list[str]:
    """Return parameters, size, latency, examples per second and training time as table text."""
    star = " *" if is_busy(row) else ""
    return [
        f"{row.num_parameters:,}" if row.num_parameters else "—",
        size_text(row.size_bytes),
        "—" if row.latency_ms is None else f"{latency_text(row.latency_ms)}{star}",
        "—" if row.sentences_per_s is None else f"{row.sentences_per_s:,.0f}{star}",
        time_text(row.train_s, language),
    ]


def noise_conditions(rows: Sequence[Row]) -> list[NoiseFigure]:
    """Return one figure for each condition that a row has, in the order they come."""
    return list({(found.noise, found.rate): found for row in rows for found in row.noise}.values())


def noise_cell(found: NoiseFigure) -> str:
    """Return a figure under noise with its drop; ▼ if the interval of the drop lies above zero."""
    if found.value is None or found.drop is None:
        return "—"
    mark = " ▼" if found.drop_ci95 is not None and found.drop_ci95[0] > 0 else ""
    return f"{percent(found.value)} ({signed(-found.drop or 0.0)}){mark}"


def noise_row(row: Row, conditions: Sequence[NoiseFigure]) -> list[str]:
    """Return a row's figures under CONDITIONS as table text."""
    own = {(found.noise, found.rate): found for found in row.noise}
    return [noise_cell(own[c.noise, c.rate]) if (c.noise, c.rate) in own else "" for c in conditions]


def clean_value(row: Row) -> str:
    """Return a row's figure on the examples that are corrupted, before they are."""
    first = next((found for found in row.noise if found.value is not None and found.drop is not None), None)
    return "—" if first is None or first.value is None or first.drop is None else percent(first.value + first.drop)


def difference_text(found: Comparison) -> str:
    """Return a difference with its interval."""
    ends = f" [{signed(found.ci95[0])}, {signed(found.ci95[1])}]" if found.ci95 else ""
    return signed(found.difference) + ends


def clean_cells(row: Row, found: CleanFigure) -> list[str]:
    """Return the figure on all examples, without the overlapping ones, and on those alone."""
    without = "—" if found.value is None else f"{percent(found.value)} {interval_text(found.ci95)}".strip()
    touched = "—" if found.touched_value is None else percent(found.touched_value)
    return ["—" if row.value is None else percent(row.value), without, touched]


def corpus_title(pair: Pair, language: Language) -> str:
    """Return the name of a pair's training text."""
    return f"{pair.corpus} ({Texts(language, 'report')('own_split')})" if pair.source == "split" else pair.corpus


def corpus_titles(pairs: Iterable[Pair], language: Language) -> str:
    """Return the names of the training texts of pairs."""
    return ", ".join(corpus_title(pair, language) for pair in pairs)


def touched_cells(pair: Pair) -> list[str]:
    """Return the overlapping examples by measure, with their share."""
    counts = [pair.measures[measure] for measure in MEASURES]
    return ["—" if c.share is None else f"{c.num_touched:,} ({100 * c.share:.2f}%)" for c in counts]


def manifest_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts on machine and versions, each with the key of its title in the catalogue."""
    names = {
        "cpu": "processor",
        "device": "device",
        "precision": "precision",
        "threads": "threads",
        "platform": "platform",
        "git": "commit",
    }
    facts = [(word, str(manifest[key])) for key, word in names.items() if manifest.get(key)]
    packages = ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())
    return facts + ([("versions", packages)] if packages else [])
