"""`context`: one vector a word against one a use: "fair" in three sentences, and senses of words in MCL-WiC.

In: pre-trained models, and the text that they were trained on. Out: how well the row of the input embedding, word2vec
and each layer of BERT tell one sense from two. The fixed vectors cannot, by construction: one form, one vector.
"""

from collections.abc import Sequence
from dataclasses import replace
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
    GivenModel,
    about_models,
    config_of,
    measure_models,
    plan_models,
    scale_notes,
)
from bertkit.studies.findings.senses import NUM_DRAWS
from bertkit.studies.findings.word2vec import MISSING, has_gensim
from bertkit.studies.study.noise import LEVEL, TEST_NAME
from bertkit.studies.study.request import StudyOutcome, StudyRequest
from bertkit.studies.study.result import Arm, Draws, Measure, Score, StudyResult, TextTable
from bertkit.studies.study.runs import PlannedRun
from bertkit.studies.study.text import study_text
from bertkit.studies.study.wording import about_machine, missing_notes, result_of
from bertkit.studies.suite_parts import read_json
from bertkit.training.toml_text import to_dataclass

SENSES = Measure("MCL-WiC accuracy", "points")
RANKING = Measure("MCL-WiC ranking, one form", "points")
FAIR = Measure("fair margin", "", decimals=3)
DRAWN = {"accuracy": SENSES, "ranking": RANKING}
DRAWN_TEST = (
    f"{NUM_DRAWS:,} bootstrap draws of the test words, and of word2vec's seeds; ± is the standard error over them; "
    f"differences are paired, two-sided, p < {LEVEL}"
)
USES = ("fair treatment", "fun fair", "unbiased judgement")


def run_context_study(request: StudyRequest) -> StudyOutcome:
    """Pre-train what is missing, train word2vec, measure, and collect."""
    options = to_dataclass(ContextOptions, request.scale.options, "options.")
    text = study_text(request)
    runs = plan_models(request, text)
    parts = [*model_parts(request, options, runs), *word2vec_parts(request, options, text)]
    todo = [part for part in parts if options.wants(part) and (part.run is not None or has_gensim())]
    config = config_of(runs[0], text)
    left = [(part.job(), part.run) for part in todo if not part.is_done]
    stopped = measure_models(request, runs, left, config.vocab_size)
    result = collect_context(request, config.num_layers, runs, parts)
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
    names = {score.measure for score in scores}
    draws = drawn(done) if is_one_finished(runs) else []
    arms = [Arm(ROW, "input embedding row (fixed)"), Arm(WORD2VEC, "word2vec (fixed)")]
    arms += [
        Arm(layer_name(layer), f"layer {layer} of {num_layers}" if layer else "embeddings with position")
        for layer in range(num_layers + 1)
    ]
    result = result_of(
        request,
        arms=arms,
        baseline=ROW,
        measures=[measure for measure in (SENSES, RANKING, FAIR) if measure.name in names],
        scores=scores,
        tables=[fair_table(arms, done), *([interval_table(arms, draws)] if draws else [])],
        notes=(*scale_notes(request), *request.recipe.notes, *_notes(parts, done)),
        about={**about_machine(request, sum(stored["seconds"] for _, stored in done)), **about_models(runs)},
        draws=draws,
        test=DRAWN_TEST if draws else TEST_NAME,
    )
    return replace(result, agreement=agreement(result))


def is_one_finished(runs: Sequence[PlannedRun]) -> bool:
    """One checkpoint gives the same figures every time, so its noise is that of the words it is asked about."""
    return len(runs) == 1 and isinstance(runs[0], GivenModel)


def drawn(done: Sequence[tuple[int, dict[str, Any]]]) -> list[Draws]:
    """Every arm's scores on the same draws; of several trainings (word2vec), each draw also draws some of them."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for _, stored in done:
        for arm, scores in stored["arms"].items():
            for name, values in scores.get("draws", {}).items():  # parts of before have none
                found.setdefault((arm, DRAWN[name].name), []).append(values)
    return [Draws(arm, measure, tuple(_mean_of_some(values))) for (arm, measure), values in found.items()]


def _mean_of_some(trainings: Sequence[Sequence[float]]) -> list[float]:
    values, number = np.array(trainings), len(trainings)  # [trainings, draws]
    times = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=values.shape[1])
    mean: list[float] = ((values * times.T).sum(axis=0) / number).tolist()
    return mean


def interval_table(arms: Sequence[Arm], draws: Sequence[Draws]) -> TextTable:
    """Where 95 % of the draws lie."""
    known = {(one.arm, one.measure): one.interval for one in draws}
    measures = [measure for measure in DRAWN.values() if any(name == measure.name for _, name in known)]
    rows = []
    for arm in arms:
        found = [known.get((arm.name, measure.name)) for measure in measures]
        if any(found):
            rows.append((arm.label, *("–" if one is None else f"{one[0]:.1f} to {one[1]:.1f}" for one in found)))
    columns = ("vectors", *(f"#{measure.name}" for measure in measures))
    return TextTable("95 % intervals over the draws of the test words", columns, tuple(rows))


def agreement(result: StudyResult) -> tuple[str, ...]:
    """The paper has no figures: what its argument leads one to expect, and what was found."""
    found = [(arm, one) for arm in result.arms if (one := result.summary(arm.name, RANKING.name))]
    layers = [(arm, one) for arm, one in found if arm.name.startswith("layer-")]
    fixed = [f"{arm.label} {one.mean:.1f}" for arm, one in found if arm.name in (ROW, WORD2VEC)]
    if not layers or not fixed:
        return ()
    best, scores = max(layers, key=lambda pair: pair[1].mean)
    return (
        "The paper argues and has no figures of this. If it is right, fixed vectors rank pairs with one form of the "
        f"word by chance, and layers do better. Here: {', '.join(fixed)}; the best of all layers, {best.label}, "
        f"{scores.mean:.1f} ± {scores.spread:.1f}, {_beyond_chance(result, best, len(layers))}.",
    )


def _beyond_chance(result: StudyResult, best: Arm, num_layers: int) -> str:
    """A fixed row has no spread, so this is a test against exactly 50; whoever picks the best had so many chances."""
    difference = result.difference(best.name, RANKING.name, ROW)
    if difference is None or difference.p is None:
        return "with too few seeds to say whether that is chance"
    p = min(1.0, num_layers * difference.p)  # Bonferroni
    if p >= LEVEL:
        return f"within the noise of chance for the best of {num_layers}"
    side = "above" if difference.value > 0 else "below"
    return f"{side} chance, outside the noise (p = {p:.2g} for the best of {num_layers})"


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
    columns = tuple(f"#{USES[a]} / {USES[b]}" for a, b in ((0, 1), (0, 2), (1, 2)))
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
