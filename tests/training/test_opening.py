"""The text of a run: a resumed one keeps it, wherever it lies, and held-out text that is trained on is told."""

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from bertkit.corpus.prepare.run import prepare
from bertkit.errors import BertkitError
from bertkit.text.samples import sample_documents
from bertkit.tokenizer import Tokenizer
from bertkit.training.evaluation import EvaluationConfig
from bertkit.training.opening import open_data
from bertkit.training.plan import Stage
from bertkit.training.recipe import DataRecipe, Recipe
from bertkit.training.run import run_pretraining
from tests.training.tiny import prepare_sample, recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vocab, store, and others of the same tokenizer: a copy, other text, and the sample's last documents."""
    made = tmp_path_factory.mktemp("stores")
    prepare_sample(made, 400)
    tokenizer, documents = Tokenizer.load(made / "vocab"), sample_documents()
    for name, part in (("copy", documents), ("most", documents[:-30]), ("last", documents[-30:])):
        (made / f"{name}.txt").write_text("\n\n".join("\n".join(lines) for lines in part), encoding="utf-8")
        prepare([made / f"{name}.txt"], tokenizer, made / name, workers=1)
    return made


def make_recipe(folder: Path, store: str, held_out: str = "") -> Recipe:
    data = DataRecipe(str(folder / store), str(folder / "vocab"), str(folder / held_out) if held_out else "", workers=0)
    return recipe(data=data, steps=2, stages=(Stage(32, 256),), evaluation=EvaluationConfig(0, 1))


def test_a_run_goes_on_with_its_own_text_alone(folder: Path, tmp_path: Path) -> None:
    first = run_pretraining(make_recipe(folder, "store"), tmp_path)
    again = run_pretraining(make_recipe(folder, "copy"), tmp_path, resume=True)  # the same text at another place
    assert again.weights_sha256 == first.weights_sha256
    with pytest.raises(
        BertkitError, match=r"began with other text than this data\.store holds: resume with"
    ) as refused:
        run_pretraining(make_recipe(folder, "most"), tmp_path, resume=True)
    assert "\n" not in str(refused.value)


def test_other_held_out_text_under_the_same_name_is_told(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "last", tmp_path / "held-out")
    given = make_recipe(folder, "most", str(tmp_path / "held-out"))
    first = run_pretraining(given, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_pretraining(given, tmp_path / "run", resume=True)
    shutil.rmtree(tmp_path / "held-out")
    documents = sample_documents()[-10:]
    (tmp_path / "other.txt").write_text("\n\n".join("\n".join(lines) for lines in documents), encoding="utf-8")
    prepare([tmp_path / "other.txt"], Tokenizer.load(folder / "vocab"), tmp_path / "held-out", workers=1)
    with pytest.warns(UserWarning, match=r"data\.held_out holds other text than the run in .* was measured on") as told:
        again = run_pretraining(given, tmp_path / "run", resume=True)
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert again.weights_sha256 == first.weights_sha256


def test_held_out_text_that_is_trained_on_is_told(folder: Path) -> None:
    with pytest.warns(UserWarning, match=r"of \d+ held-out sentences .*\(100.0%\) stand in the training text"):
        open_data(make_recipe(folder, "store", "last"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apart = open_data(make_recipe(folder, "most", "last"))
        open_data(replace(make_recipe(folder, "store"), seed=4))
    assert apart.held_out is not None
    assert apart.old_held_out is None


def test_rows_of_short_stages_reach_the_positions_of_the_longest(folder: Path) -> None:
    plain = make_recipe(folder, "store", "last")
    stages = (Stage(16, 256, share=0.9), Stage(32, 256, share=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the held-out text is trained on here
        found = open_data(replace(plain, stages=stages, data=replace(plain.data, shifted_share=1.0)))
    short, long, held_out = (feed.micro_batch(0).inputs for feed in (*found.train, found.held_out) if feed)
    assert (short.reach, long.reach, held_out.reach) == (32, 32, 16)
    assert short.position_ids.max() >= 16
    assert held_out.position_ids.max() < 16


def test_files_of_a_store_may_be_read_more_or_less_often(folder: Path, tmp_path: Path) -> None:
    files = [folder / "most.txt", folder / "last.txt"]
    store = prepare(files, Tokenizer.load(folder / "vocab"), tmp_path / "both", workers=1)
    assert store.num_documents
    plain = make_recipe(folder, str(tmp_path / "both"), "last")
    given = replace(plain, data=replace(plain.data, passes={"last*": 3.0}))
    with pytest.warns(UserWarning, match="held-out"):
        once, thrice = open_data(plain), open_data(given)
    assert thrice.train[0].epoch_size > 1.2 * once.train[0].epoch_size  # type: ignore[attr-defined]
    assert thrice.held_out.epoch_size == once.held_out.epoch_size  # type: ignore[union-attr]
    apart = replace(given, data=replace(given.data, held_out=""))
    run_pretraining(apart, tmp_path / "run")
    run_pretraining(apart, tmp_path / "run", resume=True)  # written, and read again
    with pytest.raises(BertkitError, match=r"began with data\.passes\.last\* = 3.0, not None"):
        run_pretraining(replace(plain, data=replace(plain.data, held_out="")), tmp_path / "run", resume=True)
    with pytest.raises(BertkitError, match=r"no such file; it has most\.txt, last\.txt"):
        open_data(replace(plain, data=replace(plain.data, passes={"other": 2.0})))
