"""Tagging and answering through the whole of fine-tuning: files in, a folder out that tags and answers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import LongTextWarning
from bertkit.inference.fresh import untrained
from bertkit.inference.loading import load
from bertkit.tasks.predicting import Chunk
from bertkit.tasks.reading.examples import Answer, QuestionExample, TagExample
from bertkit.tasks.registry import task_for
from bertkit.tasks.tagging.decoding import TagPrediction
from bertkit.tasks.task import Scored, collate
from bertkit.tokenizer.fitting import Limit
from bertkit.training.finetuning.baseline import measure_baselines
from bertkit.training.finetuning.data import find_long
from bertkit.training.finetuning.feed import Shape, fill_up
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.mistakes import make_mistake
from bertkit.training.finetuning.start import open_base, start_model
from tests.cli.running import run_json

SENTENCES = [
    "Wolfgang/B-PER lives in Berlin/B-LOC .",
    "The dog of Ada/B-PER Byron/I-PER sleeps .",
    "New/B-LOC York/I-LOC is large .",
    "Nobody lives here .",
]
CONTEXTS = ["The man went to the store. He bought milk and bread.", "The dog sleeps in the house of the old woman."]
QUESTIONS = [
    (0, "What did he buy?", "milk and bread"),
    (0, "Where did the man go?", "the store"),
    (1, "Who sleeps?", "The dog"),
    (1, "Where is the dog?", "the house of the old woman"),
    (1, "What did the cat eat?", None),
]
QUICK: dict[str, Any] = {"learning_rate": 3e-3, "epochs": 40, "batch_size": 8, "eval_every": 20, "device": "cpu"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that knows nothing, without dropout so that it can learn by heart."""
    sizes = {"hidden_size": 64, "num_heads": 2, "intermediate_size": 128, "max_positions": 48}
    return untrained(0, hidden_dropout=0.0, attention_dropout=0.0, **sizes).save(tmp_path_factory.mktemp("base"))


def words_and_tags(sentence: str) -> list[tuple[str, str]]:
    return [(word.partition("/")[0], word.partition("/")[2] or "O") for word in sentence.split()]


def tagged(sentence: str) -> TagExample:
    pairs = words_and_tags(sentence)
    return TagExample(tuple(word for word, _ in pairs), tuple(tag for _, tag in pairs))


def question(number: int) -> QuestionExample:
    context, text, answer = QUESTIONS[number]
    answers = () if answer is None else (Answer(answer, CONTEXTS[context].index(answer)),)
    return QuestionExample(str(number), text, CONTEXTS[context], answers, answer is None)


def test_tagging_from_a_file(base: Path, tmp_path: Path) -> None:
    lines = ["\n".join(f"{word} {tag}" for word, tag in words_and_tags(sentence)) for sentence in SENTENCES]
    (tmp_path / "train.conll").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    file, out = str(tmp_path / "train.conll"), tmp_path / "tagger"
    changes = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}") if key != "device"]
    arguments = ["-m", str(base), "--train", file, "--dev", file, "-o", str(out), "--device", "cpu", *changes]
    assert run_json("finetune", "tagging", *arguments)["scores"]["f1"] == 1.0
    bert = load(out, device="cpu")
    assert bert.config.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    found = bert.tag("The dog of Ada Byron sleeps.")
    assert [(entity.kind, entity.text) for entity in found.entities] == [("PER", "Ada Byron")]
    assert bert.evaluate(file).scores["f1"] == 1.0


def test_tagging_from_examples(base: Path, tmp_path: Path) -> None:
    examples = [tagged(sentence) for sentence in SENTENCES]
    result = finetune("tagging", model=base, train=examples, dev=examples, **QUICK)
    assert result.scores["f1"] == 1.0
    folder = result.save(tmp_path / "saved")
    found = load(folder, device="cpu").tag([example.words for example in examples])
    assert [one.tags for one in found] == [example.tags for example in examples]


def test_answering_from_a_file_stores_its_threshold(base: Path, tmp_path: Path) -> None:
    paragraphs = [{"context": context, "qas": []} for context in CONTEXTS]
    for number, (context, text, _) in enumerate(QUESTIONS):
        example = question(number)
        answers = [{"text": one.text, "answer_start": one.start} for one in example.answers]
        asked = {"id": str(number), "question": text, "answers": answers, "is_impossible": example.is_impossible}
        paragraphs[context]["qas"].append(asked)  # type: ignore[attr-defined]
    file, out = tmp_path / "train.json", tmp_path / "answerer"
    file.write_text(json.dumps({"version": "2.0", "data": [{"title": "", "paragraphs": paragraphs}]}))
    changes = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}") if key != "device"]
    arguments = ["-m", str(base), "--train", str(file), "--dev", str(file), "-o", str(out), "--device", "cpu", *changes]
    scores = run_json("finetune", "answering", *arguments)["scores"]
    assert scores["best_f1"] == 1.0
    stored = json.loads((out / "task.json").read_text())["settings"]
    assert stored == {"no_answer_threshold": scores["no_answer_threshold"]}
    bert = load(out, device="cpu")
    for number, (context, text, answer) in enumerate(QUESTIONS):
        found = bert.answer(text, CONTEXTS[context])
        assert found.text == (answer or ""), number
        assert CONTEXTS[context][found.start : found.end] == found.text
    evaluated = bert.evaluate(file).scores
    assert (evaluated["f1"], evaluated["exact_match"]) == (1.0, 1.0)


@pytest.mark.parametrize("name", ["tagging", "answering"])
def test_a_batch_filled_up_to_a_fixed_shape_has_the_same_loss_and_gradients(name: str, base: Path) -> None:
    made = open_base(base)
    sentences = [tagged(sentence) for sentence in SENTENCES]
    examples: list[Any] = sentences if name == "tagging" else [question(number) for number in range(5)]
    task = task_for(name, examples)
    items = task.encode(examples, made.tokenizer, Limit(48))
    model = start_model(made, task, 0)[0].eval()
    rows = sum(len(item.rows) for item in items)
    losses, gradients = [], []
    for shape in (None, Shape(num_tokens=200, num_sequences=12, num_rows=rows + 17, max_seqlen=48)):
        batch = collate(items) if shape is None else fill_up(collate(items), shape)
        loss = task.loss_sum(task.logits(model, batch), batch)
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*gradients, strict=True))


def test_words_cut_from_sentences_and_contexts_are_counted(base: Path) -> None:
    made = open_base(base)
    sentence = TagExample(("dog",) * 60, ("O",) * 59 + ("B-PER",))
    asked = QuestionExample("q", "Who?", "dog " * 60, (Answer("dog", 0),), False)
    for name, long in (("tagging", sentence), ("answering", asked)):
        short: Any = tagged(SENTENCES[0]) if name == "tagging" else question(0)
        task = task_for(name, [short, long])
        for policy, expected in (("truncate", ((), (1,))), ("window", ((1,), ()))):
            with pytest.warns(LongTextWarning):
                items = task.encode([short, long], made.tokenizer, Limit(30, policy))  # type: ignore[arg-type]
            found = find_long(Chunk([short, long], items))
            assert (found.windowed, found.cut) == expected


def test_simple_answers_are_scored_as_the_task_is(base: Path) -> None:
    """Where there may be no answer, by the rules of SQuAD 2.0, beside never answering."""
    examples = [question(number) for number in range(5)]
    found = measure_baselines(task_for("answering", examples), examples, examples)
    assert {"f1", "answer_f1", "no_answer_f1", "best_f1"} <= found.scores.keys()
    assert found.scores["no_answer_f1"] == 0.0  # it always answers
    assert found.majority["f1"] == pytest.approx(1 / 5)
    assert (found.majority["answer_f1"], found.majority["no_answer_f1"]) == (0.0, 1.0)
    assert "no_answer_threshold" not in found.scores
    first = measure_baselines(task_for("answering", examples[:4]), examples[:4], examples[:4])
    assert set(first.scores) == {"exact_match", "f1"}
    assert first.majority == {}


def test_always_saying_the_most_frequent_tag_is_measured() -> None:
    examples = [tagged(sentence) for sentence in SENTENCES]
    found = measure_baselines(task_for("tagging", examples), examples, examples)
    words = [tag for example in examples for tag in example.tags or ()]
    assert found.majority["f1"] == 0.0
    assert found.majority["word_accuracy"] == pytest.approx(words.count("O") / len(words))
    assert found.scores["f1"] > 0.9


def test_a_mistake_in_tags_shows_what_is_true_beside_what_was_said() -> None:
    example = tagged(SENTENCES[1])
    said = TagPrediction(("O",) * len(example.words), ())
    mistake = make_mistake(Scored(example, said, 1.0))
    assert [(mistake.text[mark.start : mark.end], mark.label) for mark in mistake.gold_marks] == [("Ada Byron", "PER")]
    assert mistake.predicted_marks == []


def test_answering_without_impossible_questions_always_answers(base: Path, tmp_path: Path) -> None:
    examples = [question(number) for number in range(4)]
    result = finetune("answering", model=base, train=examples, dev=examples, **QUICK)
    assert result.scores == {"exact_match": 1.0, "f1": 1.0}
    bert = load(result.save(tmp_path / "saved"), device="cpu")
    assert bert.stored.settings == {}
    assert bert.answer("What did the cat eat?", CONTEXTS[0]).text
