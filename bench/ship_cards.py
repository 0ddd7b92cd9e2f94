"""README.md of the models that ship: data and licences, recipe, minutes, scores, limits. Only measured figures stand there."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.ship_origin import Origin
from bench.ship_tasks import MadeTask, TaskModel
from bertkit.bundled import MODELS
from bertkit.model.config import BertConfig, num_parameters
from bertkit.pages.markdown import markdown_table
from bertkit.training.toml_text import to_plain, write_toml

PIPELINES = {
    "classification": "text-classification",
    "tagging": "token-classification",
    "answering": "question-answering",
}
CORPUS = (
    "English Wikipedia, 26,328 long core articles (an extract of 2015), CC BY-SA",
    "Simple English Wikipedia, 34,315 articles, CC BY-SA",
    "Project Gutenberg, a sample of 247 books, mostly of the 19th and early 20th century, public domain in the USA",
    "OpenStax textbooks, 4,996 sections, CC BY 4.0: by OpenStax, Rice University (openstax.org); the text was cleaned of its markup",
)
CORPUS_LIMITS = (
    "It is no generator: it fills blanks and compares, it does not write text.",
    "The corpus has about 98 million words, against the 3,300 million of the paper's BooksCorpus and full Wikipedia. Its "
    "books are old and public domain, not the unpublished novels of today that BooksCorpus holds; its Wikipedia is a "
    "selection of long articles as of 2015. What is newer, rarer or more colloquial it knows little of.",
    "It is English and uncased, and it repeats the errors and prejudices of its text.",
)
NOT_SHARES = ("perplexity",)  # all other scores are shown times 100


def small_card(
    origin: Origin,
    config: BertConfig,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    trained_on: str,
    limit: int | None = None,
) -> str:
    """The card of the encoder."""
    names = ("mlm_accuracy", "perplexity", "nsp_accuracy")
    lines = [
        *_front("fill-mask"),
        "# small-en",
        "",
        f"{_capital(MODELS['small-en'])}. A BERT of {num_parameters(config):,} parameters ({config.num_layers} layers, "
        f"{config.hidden_size} wide, {config.num_heads} heads, vocabulary {config.vocab_size:,}, "
        f"{config.max_positions} positions), trained by bertkit and stored in half precision.",
        "",
        *_use("small-en", 'bert.fill_mask("The man went to the [MASK].")'),
        "It is an ordinary BERT folder: `transformers` loads it as it is, and `bertkit convert small-en FOLDER --dtype "
        "float32` writes it anywhere else in float32.",
        "",
        *_corpus(),
        *_pretraining(origin, trained_on),
        "The whole recipe is in `bertkit.toml`. The config names a dropout for fine-tuning, whatever pre-training had.",
        "",
        *_rounded(names, before, after, "held-out text, in float32 and as stored", limit),
        *_suite(origin.suite),
        "## Limits",
        "",
        *(f"- {line}" for line in CORPUS_LIMITS),
    ]
    return "\n".join(lines) + "\n"


def task_card(model: TaskModel, mini: Origin, made: MadeTask, trained_on: str, limit: int | None = None) -> str:
    """The card of a task model."""
    setting, name = model.setting, model.name
    scored = f"{setting.name}'s {setting.scored_on} set, {made.num_dev:,} examples, in float32 and as stored"
    lines = [
        *_front(PIPELINES[setting.task]),
        f"# {name}",
        "",
        f"{_capital(MODELS[name])}: a mini BERT of bertkit's own, fine-tuned on {made.num_train:,} examples of {setting.name}.",
        "",
        *_use(name, model.use),
        "Its matrices are stored as eight-bit rows with a scale each (`model-int8.safetensors`) and are expanded when they "
        f"are loaded; `bertkit convert {name} FOLDER` writes a folder that `transformers` loads.",
        "",
        "## What it cannot do",
        "",
        *(f"- {line}" for line in (*model.limits, *CORPUS_LIMITS[2:])),
        "",
        *_rounded(tuple(made.before.scores), made.before.scores, made.after.scores, scored, limit),
        f"Both say the same of {100 * made.agreement:.2f} % of these examples. One run, the last step: nothing was chosen "
        "on this set.",
        "",
        "## Data of fine-tuning",
        "",
        *(f"- {line}" for line in model.data),
        "",
        *_toml(write_toml(to_plain(setting))),
        *_corpus(),
        *_pretraining(mini, trained_on),
        *_toml(mini.recipe),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _front(pipeline: str) -> list[str]:
    head = ["language: en", "license: cc-by-sa-4.0", "library_name: bertkit", f"pipeline_tag: {pipeline}"]
    return ["---", *head, "tags: [bert, bertkit]", "---", ""]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _use(name: str, line: str) -> list[str]:
    return ["```python", "import bertkit", "", f'bert = bertkit.load("{name}")', line, "```", ""]


def _corpus() -> list[str]:
    intro = (
        "Pre-trained on this text and nothing else; about 98 million words, cleaned and without repeated paragraphs:"
    )
    share = "The weights are given under CC BY-SA 4.0, which fits all of these."
    return ["## Text and licences", "", intro, "", *(f"- {line}" for line in CORPUS), "", share, ""]


def _pretraining(origin: Origin, trained_on: str) -> list[str]:
    facts = [
        f"{origin.steps:,} steps" if origin.steps is not None else "",
        f"{origin.tokens:,} tokens" if origin.tokens is not None else "",
        f"{origin.minutes:.1f} minutes on {trained_on}" if origin.minutes is not None else "",
    ]
    told = ", ".join(fact for fact in facts if fact) or "not recorded"
    said = f"Masked language modelling and next sentence prediction, uncased: {told}."
    return ["## Pre-training", "", said, ""]


def _rounded(
    names: Sequence[str], before: Mapping[str, float], after: Mapping[str, float], where: str, limit: int | None
) -> list[str]:
    """Scores before and after the rounding."""
    known = [name for name in names if name in before and name in after]
    rows = [[_spoken(name), _figure(name, before[name]), _figure(name, after[name])] for name in known]
    cut = [f"Cut to {limit} examples of each set: a trial, not a measurement.", ""] if limit is not None else []
    return [f"## Scores on {where}", "", *cut, markdown_table(["score", "float32", "as shipped"], rows), ""]


def _spoken(name: str) -> str:
    words = name.replace("_", " ").split(" ")
    return " ".join(word.upper() if word in ("mlm", "nsp", "f1") else word for word in words)


def _figure(name: str, value: float) -> str:
    return f"{value:.3f}" if name in NOT_SHARES else f"{100 * value:.2f}"


def _suite(results: Mapping[str, Any] | None) -> list[str]:
    """What `bertkit evaluate --suite` measured."""
    if results is None:
        return ["## Scores after fine-tuning", "", "Not measured yet.", ""]
    rows = [
        [name, f"{task['metric'].replace('_', ' ')}, {task['scored_on']}", f"{100 * task['median']:.1f}", _spread(task)]
        for name, task in results.get("tasks", {}).items()
    ]
    lines = ["## Scores after fine-tuning", "", markdown_table(["task", "score", "median", "deviation"], rows), ""]
    if results.get("average_of_five") is not None:
        lines += [f"Average of SST-2, CoLA, MRPC, RTE and STS-B: {results['average_of_five']:.1f}.", ""]
    for part, what in (("BLiMP", "BLiMP (67 sets)"), ("word-in-context", "Word in context (MCL-WiC test)")):
        if "accuracy" in results.get(part, {}):
            lines += [f"{what}: {100 * results[part]['accuracy']:.1f}.", ""]
    notes = [f"- {line}" for line in results.get("notes", ())]
    return [*lines, *notes, *([""] if notes else [])]


def _spread(task: Mapping[str, Any]) -> str:
    return f"± {100 * task['deviation']:.1f} over {len(task['scores'])} seeds"


def _toml(text: str) -> list[str]:
    return ["```toml", text.strip(), "```", ""] if text.strip() else []
