"""Every text of the demo, in Korean and in English, by key; `{…}` are values as in `str.format`."""

from collections.abc import Mapping
from dataclasses import dataclass

LANGUAGES = ("ko", "en")


@dataclass(frozen=True)
class Say:
    """The texts of one language."""

    language: str = LANGUAGES[0]

    def __call__(self, key: str, **values: object) -> str:
        """Return a text with its values filled in."""
        return TEXTS[key][LANGUAGES.index(self.language)].format(**values)

    def known(self, key: str, otherwise: str) -> str:
        """Return a text, or what stands for it where there is none, such as a label of somebody's own model."""
        return self(key) if key in TEXTS else otherwise


TEXTS: Mapping[str, tuple[str, str]] = {
    # ---- 기사 요약 ----
    "summary.title": ("기사 요약", "Summaries"),
    "summary.lead": (
        "기사에서 가장 중요한 문장을 골라 그 자리에 표시합니다. 문장을 새로 짓지 않고, 기사에 있는 그대로 보여 줍니다.",
        "Finds the sentences that say most and marks them where they stand. Nothing is reworded.",
    ),
    "summary.text": ("기사 본문", "Article"),
    "summary.placeholder": (
        "기사를 붙여 넣으세요. 바이라인이나 사진 설명이 섞여 있어도 괜찮습니다.",
        "Paste an article, with its bylines and captions if you like.",
    ),
    "summary.headline": ("제목 (있으면)", "Headline (if there is one)"),
    "summary.go": ("요약하기", "Summarise"),
    "summary.upload": ("또는 파일: txt, jsonl, csv", "Or a file: txt, jsonl, csv"),
    "summary.which": ("기사 {count}건 가운데", "Of {count} articles"),
    "summary.length": ("길이 정하기", "Length by"),
    "summary.by_sentences": ("문장 수", "sentences"),
    "summary.by_ratio": ("비율", "share"),
    "summary.by_chars": ("글자 수", "characters"),
    "summary.sentences": ("문장 수", "Sentences"),
    "summary.ratio": ("기사 문장의 몇 %", "Share of the article's sentences"),
    "summary.chars": ("최대 글자 수", "Characters at most"),
    "summary.focus": ("초점 (선택)", "Focus (optional)"),
    "summary.focus_hint": ("예: 예산", "e.g. 예산"),
    "summary.focus_help": (
        "적은 낱말이 든 문장을 먼저 고릅니다. 모자라면 나머지 문장에서 채웁니다.",
        "Sentences with these words come first; others follow if they are too few.",
    ),
    "summary.result": ("요약", "Summary"),
    "summary.facts": (
        "{total}문장 가운데 {chosen}문장 · {chars:,}자 · 본문의 {share:.0%}",
        "{chosen} of {total} sentences · {chars:,} characters · {share:.0%} of the article",
    ),
    "summary.nothing": (
        "고를 문장이 없습니다. 바이라인, 사진 설명, 목록은 요약에 쓰지 않습니다.",
        "There is no sentence to choose: bylines, captions and lists are left out.",
    ),
    "summary.copy": ("복사하기", "Copy"),
    "summary.article": ("기사", "Article"),
    "summary.excluded": (
        "점선 밑줄은 문장이 아니라고 본 부분입니다(바이라인, 사진 설명 등).",
        "Dotted underlines mark what is no sentence of the article (bylines, captions and the like).",
    ),
    "summary.chosen_hint": (
        "{number}번째로 고른 문장, 점수 {score:.2f}",
        "Chosen sentence {number}, score {score:.2f}",
    ),
    "summary.excluded_hint": ("요약에서 뺌: {kind}", "Left out: {kind}"),
    "summary.why": ("왜 이 문장인가", "Why these sentences"),
    "summary.score": ("편집자가 고를 가능성 {score:.0%}", "An editor would choose it with {score:.0%}"),
    "summary.why_note": (
        "막대는 각 이유가 점수에 더하거나 뺀 정도(로그 오즈)입니다. 빗금은 뺀 것입니다.",
        "Bars show what each reason adds to the score (log-odds); hatched bars take away.",
    ),
    "summary.all": ("{count}건 모두 요약하기", "Summarise all {count}"),
    "summary.download_all": ("요약 {count}건 내려받기 (JSONL)", "Download {count} summaries (JSONL)"),
    "feature.lead": ("기사 앞부분", "near the beginning"),
    "feature.paragraph": ("문단의 첫 문장", "begins a paragraph"),
    "feature.centrality": ("기사 전체와 낱말이 겹침", "shares words with the whole article"),
    "feature.headline": ("제목과 낱말이 겹침", "shares words with the headline"),
    "feature.length": ("길이", "length"),
    "feature.numbers": ("숫자와 날짜", "figures and dates"),
    "feature.quotation": ("인용문의 비중", "share that is quoted"),
    "feature.outlook": ("계획, 결정, 전망을 말함", "speaks of plans or forecasts"),
    "feature.embedding_centrality": ("기사 전체와 뜻이 비슷함", "means what the whole article means"),
    "feature.embedding_headline": ("제목과 뜻이 비슷함", "means what the headline means"),
    "feature.scorer": ("학습된 모델의 판단", "a trained model's judgement"),
    "feature.focus": ("초점 낱말이 들어 있음", "has the words of the focus"),
    "part.byline": ("기자 이름", "byline"),
    "part.email": ("전자우편", "e-mail address"),
    "part.copyright": ("저작권 표시", "copyright"),
    "part.caption": ("사진 설명", "caption"),
    "part.promotion": ("안내와 홍보", "promotion"),
    "part.end_mark": ("끝 표시", "end mark"),
    "part.notice": ("알림", "notice"),
    "part.related": ("관련 기사", "related links"),
    "part.timestamp": ("입력 시각", "time stamp"),
    "part.broadcast": ("방송 지시", "broadcast cue"),
    "part.list": ("목록", "list"),
    "part.heading": ("중간 제목", "heading"),
    "part.question": ("인터뷰 질문", "interview question"),
    "part.dateline": ("머리말", "dateline"),
    "part.headline": ("제목", "headline"),
    "omitted": ("… 줄임 …", "… omitted …"),
    # ---- 오늘의 뉴스 묶음 ----
    "stories.title": ("오늘의 뉴스 묶음", "Today's stories"),
    "stories.lead": (
        "하루치 제목을 올리면 같은 일을 다룬 기사끼리 묶고, 거의 같은 제목을 찾아냅니다. 묶음은 합치고, 이름 "
        "짓고, 고정할 수 있습니다.",
        "Upload a day's titles: articles on one event become a story, and copies are found. Stories can be "
        "merged, renamed and pinned.",
    ),
    "stories.upload": (
        "하루치 기사 제목: txt(한 줄에 하나), csv, jsonl, json, 빅카인즈 xlsx",
        "A day's titles: txt (one a line), csv, jsonl, json, BigKinds xlsx",
    ),
    "stories.sample": ("예시로 보기", "Try the sample"),
    "stories.sample_note": (
        "이 프로젝트가 새로 쓴 가상의 기사 120건",
        "120 invented articles that come with the project",
    ),
    "stories.sample_name": ("내장 표본", "embedded sample"),
    "stories.settings": ("묶는 방법", "How to group"),
    "stories.settings_note": (
        "바꾸면 처음부터 다시 묶으며, 손본 것은 사라집니다.",
        "A change groups anew; edits are lost.",
    ),
    "stories.min_size": ("묶음 하나의 최소 제목 수", "Titles of the smallest story"),
    "stories.by_category": ("분야 안에서만 묶기", "Group within each category"),
    "stories.articles": ("기사", "Articles"),
    "stories.stories": ("묶음", "Stories"),
    "stories.inside": ("묶인 비율", "In a story"),
    "stories.copies": ("같은 글", "Copies"),
    "stories.none": ("함께 묶을 만큼 비슷한 기사가 없습니다.", "No articles are alike enough to be a story."),
    "stories.view": ("보기", "View"),
    "stories.view_list": ("묶음", "Stories"),
    "stories.view_map": ("지도", "Map"),
    "stories.view_time": ("시간", "Time"),
    "stories.view_copies": ("같은 글", "Copies"),
    "stories.find": ("제목과 핵심어에서 찾기", "Find in titles and keywords"),
    "stories.not_found": ("찾는 말이 든 묶음이 없습니다.", "No story has these words."),
    "stories.merge_which": ("합칠 묶음", "Stories to merge"),
    "stories.merge_hint": ("둘 이상 고르세요", "Choose two or more"),
    "stories.merge": ("합치기", "Merge"),
    "stories.undo": ("되돌리기", "Undo"),
    "stories.undo_what": ("되돌리기: {what}", "Undo: {what}"),
    "edit.merge": ("합치기", "merge"),
    "edit.split": ("나누기", "split"),
    "edit.rename": ("이름", "rename"),
    "edit.pin": ("고정", "pin"),
    "stories.pin": ("고정", "Pin"),
    "stories.unpin": ("고정 풀기", "Unpin"),
    "stories.pinned": ("고정", "pinned"),
    "stories.rename": ("이름", "Rename"),
    "stories.name": ("새 이름 (비우면 원래 제목)", "New name (empty: the headline)"),
    "stories.save": ("저장", "Save"),
    "stories.count": ("{count}건", "{count} articles"),
    "stories.publishers": ("언론사 {count}곳", "{count} publishers"),
    "stories.members": ("기사 {count}건 펼치기", "Show {count} articles"),
    "stories.map_note": (
        "표식 하나가 묶음 하나, 넓이가 기사 수입니다. 가까울수록 내용이 비슷하고, 모양과 색이 분야입니다. "
        "올려놓으면 제목이 보입니다.",
        "A mark is a story, its area the number of articles; near ones are alike, shape and colour tell the "
        "category. Point at one for its title.",
    ),
    "stories.map_alt": ("묶음 지도", "Map of the stories"),
    "stories.other": ("그 밖", "Other"),
    "stories.category": ("분야", "Category"),
    "stories.size": ("기사 수", "Articles"),
    "stories.story": ("묶음", "Story"),
    "stories.keywords": ("핵심어", "Keywords"),
    "stories.no_time": (
        "기사에 날짜가 없거나 모두 같은 때라서 보일 것이 없습니다.",
        "The articles have no dates, or all the same one.",
    ),
    "stories.time_note": (
        "큰 묶음의 기사가 언제 나왔는지입니다. 칸의 수는 기사 수입니다.",
        "When the largest stories' articles appeared.",
    ),
    "stories.time_alt": ("시간에 따른 기사 수", "Articles over time"),
    "stories.no_copies": ("거의 같은 제목이 없습니다.", "There are no copies."),
    "stories.copies_note": (
        "글자가 거의 같은 제목 {count}무리(보이는 것 {shown}). 숫자, 이름, 부정하는 말이 다르면 묶지 않습니다.",
        "{count} groups of nearly the same title ({shown} shown). Another number, name or negation keeps titles apart.",
    ),
    # ---- 댓글·감성 분석 ----
    "comments.title": ("댓글·감성 분석", "Comments and sentiment"),
    "comments.lead": (
        "댓글의 감정을 확률로 나타내고, 어떤 말이 그렇게 보이게 했는지 표시합니다. 걸러 낼 기준은 직접 정하며, "
        "그 기준이 얼마나 맞는지도 함께 보입니다.",
        "Gives comments a label with its probability and marks the words that decided. You set the threshold, "
        "and see how often it is right.",
    ),
    "comments.label": ("찾을 표", "Label to look for"),
    "comments.label_help": (
        "이 표의 확률이 문턱값 이상이면 걸립니다.",
        "Flagged if its probability reaches the threshold.",
    ),
    "comments.threshold": ("문턱값", "Threshold"),
    "comments.measured_on": ("측정한 자료", "Measured on"),
    "comments.precision": ("정밀도", "Precision"),
    "comments.precision_help": ("걸린 것 가운데 맞은 비율", "Share of the flagged that is right"),
    "comments.recall": ("재현율", "Recall"),
    "comments.recall_help": ("찾아야 할 것 가운데 걸린 비율", "Share of the right ones that is flagged"),
    "comments.interval": ("95% 구간 {low:.0%}–{high:.0%}", "95 % interval {low:.0%}–{high:.0%}"),
    "comments.flagged": ("걸린 수", "Flagged"),
    "comments.basis": ("{task} 평가 자료 {count:,}건에서", "on {count:,} examples of {task}"),
    "comments.share": ("비율", "Share"),
    "comments.curve": ("문턱값에 따른 정밀도와 재현율", "Precision and recall by threshold"),
    "comments.curve_alt": ("문턱값에 따른 정밀도와 재현율", "Precision and recall by threshold"),
    "comments.curve_note": (
        "영화평 같은 다른 글에서 잰 값은 뉴스 댓글에서 달라질 수 있습니다.",
        "What was measured on other texts, such as film reviews, may differ on news comments.",
    ),
    "comments.no_data": (
        "{task}의 평가 자료가 이 컴퓨터에 없어 정밀도와 재현율을 잴 수 없습니다.",
        "No labelled data of {task} on this machine: precision and recall cannot be told.",
    ),
    "comments.mode": ("몇 건", "How many"),
    "comments.single": ("한 건", "One"),
    "comments.batch": ("여러 건", "Many"),
    "comments.text": ("댓글", "Comment"),
    "comments.placeholder": ("댓글이나 짧은 글을 붙여 넣으세요.", "Paste a comment or another short text."),
    "comments.go": ("분석하기", "Analyse"),
    "comments.example_1": (
        "배우들 연기는 좋았는데 이야기가 너무 늘어져서 지루했다",
        "배우들 연기는 좋았는데 이야기가 너무 늘어져서 지루했다",
    ),
    "comments.example_2": (
        "오랜만에 본 따뜻한 이야기, 가족과 다시 보고 싶어요!",
        "오랜만에 본 따뜻한 이야기, 가족과 다시 보고 싶어요!",
    ),
    "comments.example_3": (
        "돈과 시간이 아깝다. 평점 믿고 봤다가 속았다",
        "돈과 시간이 아깝다. 평점 믿고 봤다가 속았다",
    ),
    "comments.is": (
        "‘{label}’에 걸림: 확률 {value:.1%}, 문턱값 {threshold:.0%}",
        "Flagged as {label}: {value:.1%}, threshold {threshold:.0%}",
    ),
    "comments.is_not": (
        "‘{label}’에 걸리지 않음: 확률 {value:.1%}, 문턱값 {threshold:.0%}",
        "Not flagged as {label}: {value:.1%}, threshold {threshold:.0%}",
    ),
    "comments.cut": ("긴 글이라 앞부분만 읽었습니다.", "The text is long: only its beginning was read."),
    "comments.why": ("‘{label}’ 쪽으로 기울게 한 말", "Words that weighed for {label}"),
    "comments.why_note": (
        "+는 그 말을 빼면 확률이 내려가고, −는 올라간다는 뜻입니다. 진할수록 많이 바뀝니다.",
        "Without a word marked + the label is less likely, without one marked − more; the stronger, the more.",
    ),
    "comments.weight": ("로그 오즈 {weight:+.2f}", "log-odds {weight:+.2f}"),
    "comments.upload": ("댓글 파일: txt(한 줄에 하나), csv, jsonl", "Comments: txt (one a line), csv, jsonl"),
    "comments.sample": ("예시 댓글로 해 보기", "Try sample comments"),
    "comments.found": (
        "{total:,}건 가운데 <b>{count:,}건</b>이 걸렸습니다.",
        "<b>{count:,}</b> of {total:,} are flagged.",
    ),
    "comments.only": ("걸린 것만 보기", "Only the flagged"),
    "comments.column_flag": ("걸림", "Flagged"),
    "comments.column_score": ("확률", "Probability"),
    "comments.column_text": ("댓글", "Comment"),
    "comments.more": (
        "{total:,}건 가운데 {shown:,}건을 보입니다. 내려받으면 모두 있습니다.",
        "{shown:,} of {total:,} shown; downloads have all.",
    ),
    "label.positive": ("긍정", "positive"),
    "label.negative": ("부정", "negative"),
    "label.none": ("없음", "none"),
    "label.offensive": ("모욕", "offensive"),
    "label.hate": ("혐오", "hate"),
    "label.gender": ("성별 편견", "gender bias"),
    "label.others": ("다른 편견", "other bias"),
    "yes": ("예", "yes"),
    "no": ("아니요", "no"),
    # ---- 질문과 답 ----
    "answers.title": ("질문과 답", "Questions and answers"),
    "answers.lead": (
        "글을 주고 물으면 글 속에서 답을 찾아 표시합니다. 글에 답이 없으면 없다고 말합니다.",
        "Ask about a passage: the answer is marked in it, or you are told that there is none.",
    ),
    "answers.passage": ("글", "Passage"),
    "answers.passage_hint": ("기사나 보도자료를 붙여 넣으세요.", "Paste an article or a press release."),
    "answers.question": ("질문", "Question"),
    "answers.question_hint": ("예: 예산은 모두 얼마인가?", "e.g. 예산은 모두 얼마인가?"),
    "answers.go": ("답 찾기", "Find the answer"),
    "answers.a": ("답", "A"),
    "answers.none": ("답이 없음", "no answer"),
    "answers.confidence": ("모델의 확신 {share:.0%}", "The model is {share:.0%} sure"),
    "answers.by_letters": (
        "모델 없이, 질문과 글자가 가장 많이 겹치는 문장을 표시합니다. 겹치는 정도 {share:.0%}.",
        "Without a model: the sentence that shares most letters with the question, {share:.0%} of them.",
    ),
    "answers.never_refuses": (
        "이 모델은 답이 없는 질문을 배우지 않아 언제나 무언가를 답합니다.",
        "This model never learnt to refuse: it always answers something.",
    ),
    # ---- 빈칸 채우기 ----
    "blanks.title": ("빈칸 채우기", "Fill the blank"),
    "blanks.lead": (
        "사전학습한 인코더가 하는 일입니다. 빈칸에 어떤 말이 올지 확률로 보여 줍니다.",
        "What an encoder learns in pretraining: which words may stand in a blank, with their probabilities.",
    ),
    "blanks.text": ("문장", "Sentence"),
    "blanks.placeholder": ("빈칸은 [MASK] 또는 □로 적으세요.", "Write [MASK] or □ for a blank."),
    "blanks.go": ("채우기", "Fill"),
    "blanks.count": ("후보 수", "Candidates"),
    "blanks.blank": ("빈칸 {number}", "Blank {number}"),
    "blanks.note": (
        "후보는 낱말 전체가 아니라 모델의 어휘 조각입니다. ‘…’로 시작하면 앞말에 붙습니다. 빈칸이 여럿이면 "
        "따로따로 채웁니다.",
        "Candidates are pieces of the model's vocabulary; one with “…” goes on with the word before. Several "
        "blanks are filled one by one.",
    ),
    "blanks.example_1": ("내일은 전국에 많은 [MASK]가 내린다.", "내일은 전국에 많은 [MASK]가 내린다."),
    "blanks.example_2": ("이 영화 정말 [MASK] 봤어요.", "이 영화 정말 [MASK] 봤어요."),
    "blanks.example_3": ("정부는 새로운 [MASK]을 발표했다.", "정부는 새로운 [MASK]을 발표했다."),
    # ---- 모델 비교 ----
    "leaderboard.title": ("모델 비교", "Models compared"),
    "leaderboard.lead": (
        "같은 조건에서 잰 점수와 공표된 수치를 나란히 보이고, 모델이 틀린 예를 하나씩 살펴봅니다.",
        "Scores measured under equal conditions beside published ones, and the examples that models got wrong.",
    ),
    "leaderboard.only_reported": (
        "아직 잰 결과가 없어 공표된 수치만 보입니다. 아래 명령으로 재면 여기에 나타납니다.",
        "Nothing was measured here yet, so only published figures are shown. This command measures:",
    ),
    "leaderboard.tasks": ("과제", "Tasks"),
    "leaderboard.models": ("모델", "Models"),
    "leaderboard.sources": ("출처", "Source"),
    "leaderboard.all": ("모두", "All"),
    "leaderboard.measured": ("측정", "measured"),
    "leaderboard.reported": ("공표", "published"),
    "leaderboard.model": ("모델", "Model"),
    "leaderboard.nothing": ("고른 조건에 맞는 점수가 없습니다.", "No figure fits these filters."),
    "leaderboard.notes": ("주석 {count}개", "{count} notes"),
    "leaderboard.how": ("표 읽는 법", "How to read the table"),
    "leaderboard.chart": ("그림으로 볼 지표", "Column to draw"),
    "leaderboard.chart_alt": ("{column} 점수", "Figures of {column}"),
    "leaderboard.report": ("보고서 내려받기 (HTML)", "Download the report (HTML)"),
    "leaderboard.show_report": ("보고서를 여기서 보기", "Show the report here"),
    "leaderboard.created": ("작성 {when}", "Written {when}"),
    "mistakes.title": ("틀린 예 살펴보기", "What went wrong"),
    "mistakes.none": ("저장된 예측이 없습니다.", "There are no saved predictions."),
    "mistakes.task": ("과제", "Task"),
    "mistakes.model": ("모델", "Model"),
    "mistakes.other": ("견줄 모델 (선택)", "Compare with (optional)"),
    "mistakes.nobody": ("견주지 않음", "nobody"),
    "mistakes.find": ("글이나 정답에서 찾기", "Find in texts or right answers"),
    "mistakes.only": ("견줄 모델은 맞힌 것만", "Only what the other got right"),
    "mistakes.count": (
        "{total:,}건 가운데 틀린 것 {wrong:,}건, 보이는 것 {shown:,}건",
        "{wrong:,} of {total:,} wrong, {shown:,} shown",
    ),
    "mistakes.gold": ("정답", "right:"),
    "mistakes.said": ("예측", "said:"),
    "mistakes.other_said": ("견줄 모델", "the other:"),
    # ---- 옆 칸 ----
    "sidebar.model": ("모델", "Model"),
    "sidebar.runtime": ("실행 방식", "Runtime"),
    "sidebar.runtime_help": (
        "기본은 가장 빨리 준비됩니다. auto는 처음 한 번 이 컴퓨터에서 가장 빠른 방식을 재어 고르므로 시간이 걸립니다.",
        "The default is ready soonest; auto first measures which way is the fastest here, which takes a while.",
    ),
    "sidebar.default_runtime": ("기본", "default"),
    "sidebar.loaded": ("불러온 모델", "In memory"),
    "sidebar.none_loaded": (
        "아직 없습니다. 처음 쓸 때 한 번만 불러옵니다.",
        "None yet; each is loaded once, when first used.",
    ),
    "sidebar.memory": ("메모리 {megabytes:,.0f} MB", "{megabytes:,.0f} MB of memory"),
    "sidebar.privacy": (
        "넣은 글은 이 컴퓨터 밖으로 나가지 않으며, 창을 닫으면 사라집니다.",
        "Texts never leave this machine, and are gone when the window is closed.",
    ),
    "sidebar.add": ("다른 모델 폴더 더하기", "Add a model folder"),
    "sidebar.folder": ("폴더", "Folder"),
    "sidebar.added": ("{name} ({kind})을(를) 더했습니다.", "Added {name} ({kind})."),
    "kind.summarizer": ("요약 모델", "Summariser"),
    "kind.embedder": ("문장 임베딩 모델", "Sentence embedder"),
    "kind.classifier": ("분류 모델", "Classifier"),
    "kind.reader": ("질의응답 모델", "Question answerer"),
    "kind.encoder": ("인코더", "Encoder"),
    "model.bundled": ("함께 온 모델", "bundled"),
    "model.letters": ("글자만 견주기 (모델 없음)", "Letters alone (no model)"),
    "model.loading": ("{name} 모델을 불러오는 중", "Loading {name}"),
    "missing.summarizer": (
        "요약 모델이 없습니다. 아래 명령으로 만든 뒤 그 폴더를 알려 주세요.",
        "There is no summariser. Make one with this command and name its folder.",
    ),
    "missing.embedder": (
        "문장 임베딩 모델이 없어 글자만 견줍니다. 아래 명령으로 만들 수 있습니다.",
        "There is no sentence embedder, so titles are compared by letters alone. This command makes one.",
    ),
    "missing.classifier": (
        "함께 오는 분류 모델이 없습니다. 아래 명령으로 만들 수 있습니다.",
        "No classifier is bundled here. This command makes one.",
    ),
    "missing.reader": (
        "질의응답 모델은 함께 오지 않아 답이 있을 법한 문장을 글자로 찾습니다. "
        "아래 명령으로 모델을 학습해 더하면 답만 골라냅니다.",
        "No question answerer is bundled: letters find the sentence that is likely to hold the answer. "
        "A model, trained with this command, picks the answer itself.",
    ),
    "missing.encoder": (
        "함께 오는 인코더가 없습니다. 아래 명령으로 만들 수 있습니다.",
        "No encoder is bundled here. This command makes one.",
    ),
    # ---- 진행 ----
    "job.cancel": ("그만두기", "Cancel"),
    "job.cancelled": ("그만두었습니다.", "Cancelled."),
    "job.again": ("다시 하기", "Again"),
    "step.start": ("시작하는 중", "Starting"),
    "step.read": ("글을 읽는 중", "Reading"),
    "step.summarise": ("요약하는 중", "Summarising"),
    "step.embed": ("제목을 벡터로 바꾸는 중", "Embedding titles"),
    "step.label": ("묶음에 핵심어를 붙이는 중", "Describing stories"),
    "step.duplicates": ("같은 글을 찾는 중", "Finding copies"),
    "step.layout": ("지도를 그리는 중", "Drawing the map"),
    "step.classify": ("댓글을 분석하는 중", "Classifying"),
    # ---- 파일 ----
    "upload.help": ("파일 하나, {limit} MB까지", "One file, up to {limit} MB"),
    "upload.drop": ("파일 고르기", "Choose a file"),
    "upload.limit": ("끌어다 놓아도 됩니다 · {limit} MB까지", "or drop it here · up to {limit} MB"),
    "upload.refused": ("{limit} MB보다 큰 파일은 올릴 수 없습니다.", "Files of more than {limit} MB cannot be taken."),
    "rejected.title": ("읽지 못한 레코드 {count}건", "{count} records set aside"),
    "rejected.more": ("그 밖에 {count}건", "and {count} more"),
    "download.txt": ("글로 내려받기", "Text"),
    "download.json": ("JSON 내려받기", "JSON"),
    "download.jsonl": ("JSONL 내려받기", "JSONL"),
    "download.csv": ("CSV 내려받기", "CSV"),
    "download.html": ("한 쪽짜리 보고서 (HTML)", "One-page report (HTML)"),
    # ---- 잘못된 입력 ----
    "error.empty": (
        "글이 비어 있습니다. 붙여 넣거나 예시를 골라 주세요.",
        "The text is empty. Paste one or choose an example.",
    ),
    "error.no_passage": ("답을 찾을 글이 비어 있습니다.", "The passage is empty."),
    "error.no_question": ("질문이 비어 있습니다.", "The question is empty."),
    "error.long": (
        "글이 너무 깁니다({size:,}자). {limit:,}자까지 넣을 수 있으니 나누어 주세요.",
        "The text is too long ({size:,} characters). Divide it: {limit:,} is the most.",
    ),
    "error.tokens": (
        "글이 너무 깁니다({size:,}토큰). 이 모델은 {limit:,}토큰까지 읽습니다.",
        "The text is too long ({size:,} tokens); this model reads {limit:,}.",
    ),
    "error.format": (
        "{name}은(는) 읽을 수 없는 형식입니다. {types} 가운데 하나로 올려 주세요.",
        "{name} is of a format that cannot be read. Use one of {types}.",
    ),
    "error.empty_file": ("{name}에 내용이 없습니다. 다시 내보내 주세요.", "{name} is empty. Export it again."),
    "error.large": (
        "파일이 너무 큽니다({size:.1f} MB). {limit} MB까지 올릴 수 있습니다.",
        "The file is too large ({size:.1f} MB); {limit} MB is the most.",
    ),
    "error.many": (
        "레코드가 너무 많습니다. {limit:,}건까지 나누어 올려 주세요.",
        "There are too many records. Divide the file: {limit:,} is the most.",
    ),
    "error.few_titles": ("제목이 둘 이상 있어야 묶을 수 있습니다.", "Grouping takes two titles or more."),
    "error.no_records": ("파일에서 글을 찾지 못했습니다.", "There is no text in the file."),
    "error.not_utf8": (
        "{name}의 글자를 읽을 수 없습니다. UTF-8로 저장해 주세요.",
        "{name} is not UTF-8. Save it as UTF-8.",
    ),
    "error.cp949": (
        "{name}은(는) 옛 윈도 한글(CP949)로 저장된 듯합니다. UTF-8로 저장해 주세요.",
        "{name} looks like CP949. Save it as UTF-8.",
    ),
    "error.no_column": (
        "본문이나 제목이 든 칸을 찾지 못했습니다. 칸 이름을 ‘본문’, ‘제목’, ‘text’, ‘title’ 가운데 하나로 해 주세요.",
        "No column with a text or a title. Name it text, title, 본문 or 제목.",
    ),
    "error.json": ("JSON이 깨져 있습니다. 다시 내보내 주세요.", "The JSON is damaged. Export it again."),
    "error.csv": ("CSV의 따옴표나 칸 수가 맞지 않습니다.", "The CSV's quotes or columns do not fit."),
    "error.xlsx": (
        "엑셀 파일이 아니거나 깨져 있습니다. 다시 내보내 주세요.",
        "Not an Excel file, or damaged. Export it again.",
    ),
    "error.duplicate_id": ("같은 번호(id)가 두 번 나옵니다.", "An id occurs twice."),
    "error.surrogate": ("글자가 아닌 값이 들어 있습니다.", "A value in it is no character."),
    "error.unreadable": ("파일을 읽지 못했습니다: {what}", "The file cannot be read: {what}"),
    "error.line": ("{line}번째 레코드:", "Record {line}:"),
    "error.no_blank": (
        "빈칸이 없습니다. 비울 자리에 [MASK] 또는 □를 적어 주세요.",
        "There is no blank. Write [MASK] or □ in its place.",
    ),
    "error.model": (
        "{where} 모델을 쓸 수 없습니다. 아래는 까닭과 해결 방법입니다.",
        "The model {where} cannot be used. The reason and what to do:",
    ),
    "error.runtime": (
        "고른 실행 방식을 쓸 수 없습니다. 옆 칸에서 torch를 고르세요. ({what})",
        "This runtime cannot be used; choose torch in the sidebar. ({what})",
    ),
    "error.unforeseen": (
        "예상하지 못한 오류가 났습니다({kind}). 다른 글이나 파일로 다시 해 주세요.",
        "Something unforeseen went wrong ({kind}). Try another text or file.",
    ),
}
