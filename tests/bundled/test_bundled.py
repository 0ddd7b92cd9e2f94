"""Names of bundled models: a local folder first, then the bundled one, then the hub, which is not asked for ours."""

import shutil
from pathlib import Path

import pytest

import bertkit
from bertkit import bundled
from bertkit.errors import BertkitError
from bertkit.inference.bert import Bert
from bertkit.inference.fresh import untrained
from bertkit.model.formats import hub, resolve
from bertkit.tokenizer import Tokenizer
from bertkit.training.finetuning.start import open_base
from tests.cli.running import rows, run, run_json

NAME = "small-en"


@pytest.fixture(scope="module")
def bert() -> Bert:
    return untrained(0, hidden_size=32, intermediate_size=64)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for bundled models, an empty working folder, and a hub that must not be asked."""

    def ask(name: str) -> Path:
        raise AssertionError(f"the hub was asked for {name}")

    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(bundled, "HERE", tmp_path / "bundled")
    monkeypatch.setattr(hub, "_fetch", ask)
    monkeypatch.delenv("BERTKIT_MODEL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "bundled"


def test_a_bundled_name_needs_no_network(bert: Bert, home: Path) -> None:
    bert.save(home / NAME)
    assert resolve(NAME) == home / NAME
    text = "The dog went to the [MASK]."
    assert bertkit.load(NAME, device="cpu").fill_mask(text) == bert.fill_mask(text)
    assert open_base(NAME).path == home / NAME  # what fine-tuning starts from


def test_a_bundled_name_names_its_tokenizer_too(bert: Bert, home: Path) -> None:
    with pytest.raises(BertkitError, match="small-en does not exist"):
        Tokenizer.load(NAME)
    bert.save(home / NAME)
    assert Tokenizer.load(NAME).fingerprint == bert.tokenizer.fingerprint
    Path("text.txt").write_text("The dog went to the store. It was closed.\n")
    assert "2 sentences" in run("prepare", "text.txt", "-t", NAME, "-o", "store", "--workers", "1")[0]


def test_a_folder_of_that_name_comes_first(bert: Bert, home: Path) -> None:
    bert.save(home / NAME)
    bert.save(Path(NAME))
    assert resolve(NAME) == Path(NAME)


def test_any_other_name_is_the_hubs(home: Path) -> None:
    with pytest.raises(AssertionError, match="asked for smal-en"):
        resolve("smal-en")


def test_a_bundled_model_that_is_not_here() -> None:
    with pytest.raises(BertkitError) as caught:
        bertkit.load(NAME)
    assert str(caught.value).startswith(f"{NAME} comes with bertkit, but this copy lacks it")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "near"), [("smal-en", "small-en"), ("sentiments-en", "sentiment-en")])
def test_a_name_that_nearly_fits(name: str, near: str) -> None:
    assert hub._hint(name) == f"; did you mean {near}, which comes with bertkit?"
    assert hub._hint("bert-base-uncased") == ""


def test_info_lists_them(bert: Bert, home: Path) -> None:
    saved = bert.save(home / NAME)
    size = sum(path.stat().st_size for path in saved.iterdir())
    shown = {row[0]: row[1] for row in rows(run("info")[0])}
    assert shown == {
        NAME: f"{size / 1e6:.1f}",
        "sentiment-en": "not here",
        "entities-en": "not here",
        "answers-en": "not here",
    }
    plain = {row["name"]: row["bytes"] for row in run_json("info")}
    assert plain == {NAME: size, "sentiment-en": None, "entities-en": None, "answers-en": None}
    assert run_json("info", "-m", NAME)["config"]["hidden_size"] == 32


def test_convert_writes_an_ordinary_folder(bert: Bert, home: Path, tmp_path: Path) -> None:
    bert.save(home / NAME, layout="int8")
    run("convert", NAME, str(tmp_path / "out"))
    assert (tmp_path / "out" / "model.safetensors").is_file()
    shutil.rmtree(home)
    assert bertkit.load(tmp_path / "out").report.dtypes == ("float32",)  # type: ignore[union-attr]
