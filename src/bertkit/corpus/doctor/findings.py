"""What a Look at a corpus means: each figure with its bounds, and what to do where they are passed.

The bounds are rules of thumb, chosen so that clean Wikipedia and book text in its own vocabulary passes everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bertkit.corpus.doctor.look import Look
from bertkit.corpus.doctor.sample import TextSource
from bertkit.corpus.overlap import MOST_SHARED, compare_stores
from bertkit.corpus.store import TokenStore
from bertkit.text.counted import counted, in_millions
from bertkit.text.findings import Finding, grade
from bertkit.text.languages import UNCLEAR
from bertkit.tokenizer.casing import casing_conflict
from bertkit.tokenizer.report import VocabularyReport, measure_vocabulary

COMMON_DOCUMENTS, COMMON_SHARE = 10, 0.01  # a line of so many documents, and of this share of them, is boilerplate
FEW_CAPITALS = 0.005  # of letters; English prose has 3 to 5 %
MANY_CAPITALS = 0.5
LEAST_CASING = 0.01  # unknown words; below that nothing is lost by casing
NUM_SHOWN = 3
MOST_TOKENS = 512  # of a sentence, where no recipe says how long an example is


@dataclass(frozen=True)
class Needs:
    """What the data is for."""

    max_length: int = MOST_TOKENS  # of the shortest stage
    next_sentence: bool = True


def data_findings(look: Look, needs: Needs | None = None) -> list[Finding]:
    """Everything that a look tells."""
    needs = needs or Needs()
    words = measure_vocabulary(look.source.tokenizer, look.kept)
    return [
        _extent(look),
        *_unreadable(look),
        _duplicates(look),
        _near_duplicates(look),
        _boilerplate(look),
        _markup(look),
        _unknown(look, words),
        _fertility(look),
        _documents(look, needs),
        _sentences(look, needs),
        _languages(look),
        _casing(look, words),
    ]


def overlap_finding(train: TokenStore, held_out: TokenStore) -> Finding:
    """Whether held-out text is trained on."""
    found = compare_stores(train, held_out)
    level = grade(found.share, warning=MOST_SHARED, problem=0.2)
    advice = "prepare data.held_out from documents that are not in data.store: its figures look too good"
    values = {"share": found.share, "num_shared": found.num_shared, "num_sentences": found.num_sentences}
    return Finding("held out", level, found.line, advice if level != "ok" else "", values)


def _extent(look: Look) -> Finding:
    share, how = look.source.extent(look.num_characters)
    size = f"{in_millions(look.num_characters)} characters, {counted(look.num_documents, 'document')}"
    figure = f"looked at {size}: {share:.1%} of it, {how}"
    values = {"share": share, "num_characters": look.num_characters, "num_documents": look.num_documents}
    advice = "" if share == 1.0 else "copies and mixtures beyond that are not seen; raise --sample to see more"
    return Finding("looked at", "ok", figure, advice, values)


def _unreadable(look: Look) -> list[Finding]:
    if not isinstance(look.source, TextSource):
        return []
    num = look.source.report.num_problems
    level = grade(num / max(1, num + look.source.report.num_paragraphs), warning=1e-9, problem=0.05)
    first = f"; the first: {look.source.report.named[0]}" if num else ""
    advice = "convert or repair these; `bertkit prepare` leaves them out and names them" if num else ""
    return [
        Finding(
            "readable",
            level,
            f"{counted(num, 'line or row', 'lines or rows')} cannot be read{first}",
            advice,
            {"num_problems": num},
        )
    ]


def _duplicates(look: Look) -> Finding:
    shares = {name: getattr(look.repeats, name).share for name in ("sentences", "paragraphs", "documents")}
    if not look.source.is_text:
        del shares["paragraphs"]  # a store keeps none
    figure = "there before: " + ", ".join(f"{share:.1%} of {name}" for name, share in shares.items())
    level = grade(max(shares.values()), warning=0.05, problem=0.20)
    return Finding("duplicates", level, figure + " (by characters)", _duplicates_advice(look, level), shares)


def _duplicates_advice(look: Look, level: str) -> str:
    if level == "ok":
        return ""
    if look.source.is_text:
        return "prepare with --dedup (the default), which leaves out copies of paragraphs; remove copies of documents"
    return "prepare the store again with --dedup, from files in which a paragraph is a line"


def _near_duplicates(look: Look) -> Finding:
    share = max(0.0, look.repeats.near.share - look.repeats.sentences.share)
    level = grade(share, warning=0.05, problem=0.25)
    advice = "" if level == "ok" else "filled-in forms or listings: remove these pages, they teach their template"
    figure = f"{share:.1%} more of sentences differ from an earlier one only in case, numbers or marks"
    return Finding("near duplicates", level, figure, advice, {"share": share})


def _boilerplate(look: Look) -> Finding:
    lines = look.repeats.lines
    common = lines.common(max(COMMON_DOCUMENTS, round(COMMON_SHARE * lines.num_documents)))
    share = common[0][1] / lines.num_documents if common else 0.0
    level = grade(share, warning=COMMON_SHARE, problem=0.2)
    shown = "; ".join(f"{line!r} in {count:,}" for line, count in common[:NUM_SHOWN])
    figure = f"{counted(len(common), 'line stands', 'lines stand')} in many documents{': ' if shown else ''}{shown}"
    advice = "remove these lines from the text before `bertkit prepare`" if level != "ok" else ""
    return Finding("boilerplate", level, figure, advice, {"num_lines": len(common), "lines": common[:20]})


def _markup(look: Look) -> Finding:
    share = look.marks.total() / look.num_paragraphs
    level = grade(share, warning=0.01, problem=0.1)
    shown = ", ".join(mark[:20] for mark, _ in look.marks.most_common(NUM_SHOWN))
    figure = f"{share:.1%} of paragraphs hold HTML{f', such as {shown}' if shown else ''}"
    advice = (
        "take tags and entities out of the text before `bertkit prepare`, which keeps them" if level != "ok" else ""
    )
    return Finding("markup", level, figure, advice, {"share": share})


def _unknown(look: Look, words: VocabularyReport) -> Finding:
    rate = look.pieces.unknown_rate
    level = grade(rate, warning=0.01, problem=0.05)
    shown = ", ".join(word for word, _ in words.unknown_words[:NUM_SHOWN])
    figure = f"{rate:.2%} of words are unknown{f', such as {shown}' if shown else ''}"
    advice = "this vocabulary is of another kind of text: learn one with `bertkit vocab train`" if level != "ok" else ""
    return Finding("unknown words", level, figure, advice, {"rate": rate, "words": words.unknown_words})


def _fertility(look: Look) -> Finding:
    found = look.pieces.fertility
    level = grade(found, warning=2.0, problem=3.5)
    advice = "words are cut small: learn a vocabulary of this text, or a larger one" if level != "ok" else ""
    return Finding("fertility", level, f"{found:.2f} pieces a word", advice, {"fertility": found})


def _documents(look: Look, needs: Needs) -> Finding:
    lengths, tokens = np.array(look.document_lengths), np.array(look.document_tokens)
    single, largest = float((lengths == 1).mean()), float(tokens.max() / tokens.sum())
    level = grade(single, warning=0.1, problem=0.5) if needs.next_sentence else "ok"
    advice = "a document of one sentence has no next one: " if level != "ok" else ""
    advice += "join what belongs together, give --documents, or set data.next_sentence = false" if advice else ""
    if needs.next_sentence and len(lengths) < 2:
        level, advice = "problem", "there is one document, so no stranger for a pair: put blank lines between documents"
    elif level == "ok" and largest > 0.5 and len(lengths) > 2:
        level, advice = "warning", "one document is most of the text: is a blank line missing between documents?"
    low, middle, high = np.percentile(lengths, [10, 50, 90])
    figure = f"{single:.1%} have one sentence; {low:.0f} / {middle:.0f} / {high:.0f} sentences (10 %, median, 90 %)"
    values = {"single_share": single, "largest_share": largest, "median": float(middle)}
    return Finding("documents", level, figure, advice, values)


def _sentences(look: Look, needs: Needs) -> Finding:
    lengths = look.all_sentence_lengths
    long_share = float(lengths[lengths > needs.max_length].sum() / lengths.sum())
    low, middle, high = np.percentile(lengths, [10, 50, 90])
    level = grade(long_share, warning=0.05, problem=0.3)
    advice = "no sentence ends are found there: is it code, tables or lists?" if level != "ok" else ""
    if level == "ok" and middle < 4:
        level, advice = "warning", "sentences are very short: headings, lists, or words a line? remove or join them"
    figure = (
        f"{low:.0f} / {middle:.0f} / {high:.0f} tokens (10 %, median, 90 %); {long_share:.1%} of the text is in sentences "
        f"over {needs.max_length}"
    )
    return Finding("sentences", level, figure, advice, {"long_share": long_share, "median": float(middle)})


def _languages(look: Look) -> Finding:
    shares = look.languages.shares(look.languages.languages)
    scripts = look.languages.shares(look.languages.scripts)
    known = {name: share for name, share in shares.items() if name != UNCLEAR}
    unclear, total = shares.get(UNCLEAR, 0.0), max(1e-9, sum(known.values()))
    foreign = 1.0 - max(known.values(), default=total) / total if unclear < 1.0 else 0.0
    foreign_letters = 1.0 - look.languages.main_script_share
    level = grade(max(foreign, foreign_letters), warning=0.05, problem=0.2)
    advice = "separate the languages, or learn one vocabulary on all of them; --accept languages if it is meant"
    if level == "ok" and unclear > 0.5:
        level, advice = "warning", "most of it is in no language known here, or not running text: look at some of it"
    shown = [f"{share:.1%} {name}" for name, share in shares.items() if share >= 0.002]
    shown += [f"{share:.1%} of letters {name}" for name, share in scripts.items() if 0.002 <= share < 0.998]
    figure = ", ".join(shown[:8]) or "no letters"
    return Finding(
        "languages", level, figure, advice if level != "ok" else "", {"languages": shares, "scripts": scripts}
    )


def _casing(look: Look, words: VocabularyReport) -> Finding:
    tokenizer, capitals = look.source.tokenizer, look.languages.capital_share
    kind = "uncased" if tokenizer.lowercase else "cased"
    figure, values = f"{capitals:.1%} of letters are capitals; the tokenizer is {kind}", {"capital_share": capitals}
    conflict = casing_conflict(tokenizer.tokens, lowercase=tokenizer.lowercase, source="the vocabulary")
    if conflict and tokenizer.lowercase:
        return Finding("casing", "problem", figure, conflict, values)
    if tokenizer.lowercase:
        return Finding("casing", "ok", figure, "", values)
    if conflict or _is_lost_by_casing(look, words):
        advice = "unknown words are known in small letters: the vocabulary is uncased, so load or learn it as such"
        return Finding("casing", "problem", figure, advice, values)
    if look.languages.num_small + look.languages.num_capitals and not FEW_CAPITALS <= capitals <= MANY_CAPITALS:
        advice = "the text has hardly any sentence case: a cased model learns nothing of it; take an uncased vocabulary"
        return Finding("casing", "warning", figure, advice, values)
    return Finding("casing", "ok", figure, "", values)


def _is_lost_by_casing(look: Look, words: VocabularyReport) -> bool:
    """Whether lower-casing the text would make at least half of its unknown words known."""
    if words.unknown_rate < LEAST_CASING:
        return False
    small = measure_vocabulary(look.source.tokenizer, [text.lower() for text in look.kept])
    return small.unknown_rate < words.unknown_rate / 2
