"""What a report says, in Korean and in English."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from downstream.task import Task

Language: TypeAlias = Literal["ko", "en"]


class Words(NamedTuple):
    """A text in both languages."""

    ko: str
    en: str


TITLE = Words("PressBERT 리더보드", "PressBERT leaderboard")
MEASURED = Words("측정: 공식 평가 자료", "Measured on the official evaluation data")
ON_OTHER = Words("측정: 대체 분할", "Measured on substitute splits")
ON_SAMPLE = Words(
    "측정: 내장 표본 (공식 점수와 비교할 수 없음)",
    "Measured on the embedded sample (not comparable with official scores)",
)
REPORTED = Words("공표된 수치: 공식 평가 자료, 1회 실행", "Reported: official evaluation data, a single run")
BLOCKS = (MEASURED, ON_OTHER, ON_SAMPLE, REPORTED)
HOW_TO_READ = Words(
    "값은 ×100. 대괄호는 평가 예제에 대한 95% 부트스트랩 구간, ±는 시드 사이의 표준편차(시드가 둘 이상일 때). "
    "‘위’는 과제의 대표 지표에서 그 모델이 있을 수 있는 순위의 범위입니다. 예제와 시드를 함께 본 쌍대 검정(과제 안에서 "
    "Holm 보정)에서 우열이 가려진 모델만 셉니다: 2–4위는 한 모델에 뒤지고 두 모델과는 우열을 가릴 수 없다는 뜻입니다. "
    "빈칸의 이유는 번호를 따라 아래 주석에 적었습니다.",
    "Values are ×100. Brackets hold the 95 % bootstrap interval over examples, ± is the standard deviation over seeds "
    "(of two or more). A rank is the range of places that a model may hold in a task's ranking metric. It counts only "
    "models that a paired test over examples and seeds, Holm-corrected within the task, tells apart: rank 2–4 is "
    "behind "
    "one model and cannot be told from two. Numbers in brackets lead to the notes, which say why a cell is empty.",
)
UNDEFINED = Words("예측이 모두 같아 {} 값을 정의할 수 없음", "{} is undefined, because all predictions are the same")
SOME_SEEDS = Words("일부 시드 실패: ", "Some seeds failed: ")
FAILED = Words("실패: ", "Failed: ")
UNAVAILABLE = Words("실행 불가: ", "Could not run: ")
SUBSTITUTE = Words(
    "{}: 공식 과제 {} 대신 쓴 과제. 공식 점수와 비교할 수 없음",
    "{}: stands in for the official task {}; not comparable with official scores",
)
BUSY = Words(
    "* 다른 일을 하는 기계에서 잰 값(프로세서를 쓴 시간이 지난 시간의 90% 미만)이라 실제보다 느리게 나옵니다.",
    "* Timed on a machine busy with other work (processor time below 90 % of wall time): slower than it is.",
)


def task_title(task: Task, language: Language = "ko") -> str:
    """Return the name of a task in tables; in English its key where the title is Korean."""
    return task.title if language == "ko" or task.title.isascii() else task.name


SECTIONS: Mapping[str, Words] = {
    "table": Words("점수", "Scores"),
    "forest": Words("구간", "Intervals"),
    "pairs": Words("쌍대 검정", "Paired tests"),
    "cost": Words("비용", "Cost"),
    "noise": Words("입력이 지저분할 때", "Noisy input"),
    "errors": Words("갈린 예제", "Where models disagree"),
    "contamination": Words("학습 글과의 겹침", "Contamination"),
    "curves": Words("학습 곡선", "Learning curves"),
    "manifest": Words("매니페스트", "Manifest"),
}
"""Of the page, in their order."""

WORDS: Mapping[str, Words] = {
    "model": Words("모델", "Model"),
    "task": Words("과제", "Task"),
    "notes": Words("주석", "Notes"),
    "created": Words("작성", "Created"),
    "models": Words("모델", "models"),
    "tasks": Words("과제", "tasks"),
    "figures": Words("측정값", "measured figures"),
    "seeds": Words("시드", "seeds"),
    "search": Words("모델 찾기", "Find a model"),
    "all_tasks": Words("모든 과제", "All tasks"),
    "all_metrics": Words("지표 모두 보기", "All metrics"),
    "all_sources": Words("모든 출처", "All sources"),
    "sort_hint": Words(
        "열 제목을 누르면 그 열로 정렬합니다. 한 번 더 누르면 거꾸로.",
        "Press a column's title to sort by it, once more to turn the order.",
    ),
    "nothing": Words("맞는 것이 없습니다.", "Nothing matches."),
    "forest_text": Words(
        "● 공식 평가 자료에서 측정 · ■ 내장 표본·대체 분할에서 측정 · ◇ 공표된 수치. 가로줄은 95% 구간입니다.",
        "● measured on official data · ■ measured on the sample or a substitute split · ◇ reported. Lines are 95 % "
        "intervals.",
    ),
    "other_metrics": Words("다른 지표", "Other metrics"),
    "pairs_text": Words(
        "과제의 대표 지표에서 모든 짝을 견줍니다. p는 예제와 시드를 함께 본 것이고, 보정한 p는 과제 안의 모든 짝에 "
        "대한 "
        "Holm 보정입니다. 0.05 아래에서만 우세라고 적습니다.",
        "Every pair in the task's ranking metric. p is over examples and seeds together, corrected over all pairs of "
        "the task by Holm's method. Only below 0.05 is a model called better.",
    ),
    "better": Words("우세", "better"),
    "worse": Words("열세", "worse"),
    "difference": Words("차이 [95% 구간]", "Difference [95 % interval]"),
    "corrected_p": Words("보정한 p", "Corrected p"),
    "verdict": Words("판정", "Verdict"),
    "tie": Words("우열을 가릴 수 없음", "not told apart"),
    "untold": Words("판정 불가", "cannot be told"),
    "cost_text": Words(
        "CPU 코어 하나에서 글에서 답까지 걸린 시간입니다. 지연은 예제를 하나씩 넣었을 때의 중앙값, 초당 예제는 "
        "한꺼번에 "
        "넣었을 때입니다. 크기는 저장된 가중치, 학습 시간은 시드의 평균입니다.",
        "Time from text to answer on one CPU core. Latency is the median of one example at a time, examples per second "
        "are of many at once. Size is that of the saved weights, training time the mean over seeds.",
    ),
    "parameters": Words("매개변수", "Parameters"),
    "size": Words("크기", "Size"),
    "latency": Words("지연", "Latency"),
    "rate": Words("초당 예제", "Examples/s"),
    "train": Words("학습 시간", "Training"),
    "scatter_text": Words(
        "가로는 CPU 지연(로그 눈금), 세로는 대표 지표. 왼쪽 위가 좋습니다. 속이 빈 표시는 바쁜 기계에서 잰 것입니다.",
        "Across: CPU latency (logarithmic); up: the ranking metric. Upper left is better. Hollow marks were timed on a "
        "busy machine.",
    ),
    "noise_text": Words(
        "같은 예제를 그대로, 그리고 정한 비율로 망가뜨려 넣었을 때의 대표 지표입니다. 부호가 붙은 값은 달라진 폭, "
        "▼는 그 폭의 "
        "95% 구간이 0을 넘는다는 표시입니다.",
        "The ranking metric on the same examples as they are and damaged at set rates. The signed value is the "
        "change; ▼ "
        "where the 95 % interval of the drop lies above zero.",
    ),
    "errors_text": Words(
        "모델의 답이 갈린 예제입니다. 한 모델은 맞고 다른 모델은 틀린 것을 골라 볼 수 있습니다. 과제마다 가장 크게 "
        "갈린 "
        "것부터 골랐고, 같은 정도면 예제의 이름에서 얻은 난수로 골랐습니다.",
        "Examples on which the models' answers differ. Choose a model that is right and one that is wrong. Of each "
        "task "
        "the widest splits come first; among equals a number drawn from the example's name decides.",
    ),
    "not_quoted": Words(
        "이 과제의 글은 사람을 모욕하므로 옮기지 않습니다.", "Texts of this task abuse people and are not quoted."
    ),
    "right": Words("맞은 모델", "Right"),
    "wrong": Words("틀린 모델", "Wrong"),
    "any": Words("아무 모델", "any model"),
    "gold": Words("정답", "Gold"),
    "disputed": Words("갈린 예제", "disputed examples"),
    "shown": Words("보이는 것", "shown"),
    "text": Words("글", "Text"),
    "pair": Words("둘째 글", "Second text"),
    "question": Words("질문", "Question"),
    "context": Words("지문", "Context"),
    "no_answer": Words("(답 없음)", "(no answer)"),
    "more": Words("더 보기", "Show more"),
    "contamination_text": Words(
        "학습 글에 평가 예제가 들어 있는지를 다섯 기준으로 찾은 결과입니다. 걸린 예제의 수와, 기준을 쓸 수 있는 "
        "예제 중 "
        "비율입니다. —는 기준을 쓸 수 있을 만큼 긴 예제가 없다는 뜻입니다.",
        "Evaluation examples that were found in training text, by five measures: their number, and their share of "
        "those "
        "that the measure applies to. — where no example is long enough for it.",
    ),
    "training_text": Words("학습 글", "Training text"),
    "own_split": Words("과제 자신의 학습 분할", "the task's own training split"),
    "examples": Words("예제", "Examples"),
    "clean_hint": Words(
        "‘겹침 제외’는 학습 글에도 있는 평가 예제를 빼고 잰 값이며, 학습 글마다 다르면 그 범위입니다. 하나하나는 "
        "‘학습 글과의 겹침’에 있습니다.",
        "“Without overlap” leaves out the evaluation examples that training text holds, too; where it depends on the "
        "training text it is a range. Each figure stands under “Contamination”.",
    ),
    "clean_title": Words("걸린 예제를 뺀 점수", "Scores without the touched examples"),
    "with_all": Words("전체", "All"),
    "without": Words("걸린 예제 제외", "Without touched"),
    "only_touched": Words("걸린 예제만", "Touched only"),
    "hits": Words("걸린 것의 목록", "List of hits"),
    "curves_text": Words(
        "미세 조정 중의 학습 손실입니다. 선 하나가 시드 하나입니다.",
        "Training loss while fine-tuning. One line a seed.",
    ),
    "steps": Words("스텝", "steps"),
    "loss": Words("손실", "loss"),
    "again": Words("다시 하기", "Again"),
    "again_text": Words(
        "자료와 버전이 같은지 확인한 뒤 같은 모델, 과제, 시드, 설정으로 다시 합니다.",
        "Checks that data and versions are the same, then repeats models, tasks, seeds and settings.",
    ),
    "experiments": Words("실험", "Experiments"),
    "recipe": Words("설정", "Recipe"),
    "versions": Words("버전", "Versions"),
    "processor": Words("프로세서", "Processor"),
    "device": Words("장치", "Device"),
    "precision": Words("학습 정밀도", "Precision of training"),
    "commit": Words("소스", "Source"),
    "threads": Words("스레드", "Threads"),
    "platform": Words("운영 체제", "System"),
    "licence": Words("자료", "Data"),
    "clean": Words("그대로", "as it is"),
    "bootstrap": Words("95% 구간", "95 % interval"),
}
