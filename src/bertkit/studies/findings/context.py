"""`context`: one vector a word against one a use: "fair" in three sentences, and senses of words in MCL-WiC.

In: pre-trained models, and the text that they were trained on. Out: how well the row of the input embedding, word2vec
and each layer of BERT tell one sense from two. The fixed vectors cannot, by construction: one form, one vector.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertkit.studies.findings.context_parts import (
    ROW,
    WORD2VEC,
    ContextOptions,
    SensePart,
    layer_name,
    model_parts,
    word2vec_parts,
)
from bertkit.studies.findings.parts import (
    GPU_PARTS,
    about_machine,
    config_of,
    missing_notes,
    num_workers,
    plan_models,
    scale_notes,
    trained_on,
    training_phase,
    work_through,
)
from bertkit.studies.findings.word2vec import MISSING, has_gensim
from bertkit.studies.study.request import StudyOutcome, StudyRequest
from bertkit.studies.study.result import Arm, Measure, Score, StudyResult, TextTable
from bertkit.studies.study.runs import PlannedRun
from bertkit.studies.study.text import study_text
from bertkit.studies.suite_parts import read_json
from bertkit.training.toml_text import to_dataclass

SENSES = Measure("MCL-WiC accuracy", "points")
RANKING = Measure("MCL-WiC ranking, one form", "points")
FAIR = Measure("fair margin", "", decimals=3)
USES = ("fair treatment", "fun fair", "unbiased judgement")


def run_context_study(request: StudyRequest) -> StudyOutcome:
    """Pre-train what is missing, train word2vec, measure, and collect."""
    options = to_dataclass(ContextOptions, request.scale.options, "options.")
    text = study_text(request)
    runs = plan_models(request, text)
    parts = [*model_parts(request, options, runs), *word2vec_parts(request, options, text)]
    todo = [part for part in parts if options.wants(part) and (part.run is not None or has_gensim())]
    left = [part for part in todo if not part.is_done]
    needed = {part.run.name for part in left if part.run is not None}
    phases = [
        training_phase(request, runs, needed, text),
        ([part.job() for part in left], num_workers(request, GPU_PARTS)),
    ]
    stopped = work_through(request, phases)
    result = collect_context(request, config_of(runs[0], text).num_layers, runs, parts)
    result.write(request.folder)
    missing = tuple(part.said for part in todo if not part.is_done)
    return StudyOutcome(result, request.folder, missing, stopped)


def collect_context(
    request: StudyRequest, num_layers: int, runs: Sequence[PlannedRun], parts: Sequence[SensePart]
) -> StudyResult:
    """What is stored so far."""
    done = [(part.seed, read_json(part.path)) for part in parts if part.is_done]
    scores = [
        score for seed, stored in done for arm, found in stored["arms"].items() for score in _scores(arm, seed, found)
    ]
    recipe, names = request.recipe, {score.measure for score in scores}
    arms = [Arm(ROW, "input embedding row (fixed)"), Arm(WORD2VEC, "word2vec (fixed)")]
    arms += [
        Arm(layer_name(layer), f"layer {layer} of {num_layers}" if layer else "embeddings with position")
        for layer in range(num_layers + 1)
    ]
    return StudyResult(
        name=recipe.name,
        scale=request.scale_name,
        question=recipe.question,
        claim=recipe.claim,
        paper=recipe.paper,
        arms=tuple(arms),
        baseline=ROW,
        measures=tuple(measure for measure in (SENSES, RANKING, FAIR) if measure.name in names),
        scores=tuple(scores),
        tables=(fair_table(arms, done),),
        notes=(*scale_notes(request), *recipe.notes, *_notes(parts, done)),
        remark=recipe.remark,
        command=request.command,
        about={**about_machine(request, sum(stored["seconds"] for _, stored in done) / 60), **trained_on(runs)},
    )


def _scores(arm: str, seed: int, found: dict[str, Any]) -> list[Score]:
    values = {SENSES.name: found["senses"]["accuracy"], RANKING.name: found["senses"].get("ranking")}
    if found["fair"] is not None:
        values[FAIR.name] = found["fair"][0][2] - found["fair"][0][1]
    return [Score(arm, name, seed, value) for name, value in values.items() if value is not None]


def fair_table(arms: Sequence[Arm], done: Sequence[tuple[int, dict[str, Any]]]) -> TextTable:
    """The three cosines of every arm, as means over the seeds."""
    rows = []
    for arm in arms:
        found = [stored["arms"][arm.name]["fair"] for _, stored in done if arm.name in stored["arms"]]
        known = [np.array(one) for one in found if one is not None]
        if known:
            mean = np.mean(known, axis=0)
            rows.append((arm.label, *(f"{mean[a][b]:.3f}" for a, b in ((0, 1), (0, 2), (1, 2)))))
    columns = tuple(f"{USES[a]} / {USES[b]}" for a, b in ((0, 1), (0, 2), (1, 2)))
    return TextTable('Cosines of "fair" in its sentences and "unbiased"', ("vectors", *columns), tuple(rows))


def _notes(parts: Sequence[SensePart], done: Sequence[tuple[int, dict[str, Any]]]) -> list[str]:
    notes = []
    unknown = [stored["arms"][WORD2VEC]["unknown"] for _, stored in done if WORD2VEC in stored["arms"]]
    if unknown:
        notes.append(
            f"{100 * max(unknown):.1f} % of the marked words are too rare in the text for word2vec to have them."
        )
    left = [part for part in parts if not part.is_done]
    notes += missing_notes([part.said for part in left])
    if any(part.run is None for part in left) and not has_gensim():
        notes.append(f"word2vec was left out: {MISSING}.")
    return notes
