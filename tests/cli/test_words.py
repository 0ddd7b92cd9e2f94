"""`bertkit words`: similarity tables, maps, and a word2vec file beside the model."""

import json
from pathlib import Path

import pytest

from bertkit.errors import BertkitError
from bertkit.inference.words import EXAMPLES
from tests.cli import running
from tests.pages.reading import assert_self_contained
from tests.pages.tiny import tiny_bert


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_bert().save(tmp_path_factory.mktemp("tiny")))


def run(*arguments: str) -> str:
    return running.run("words", *arguments)[0]


def test_the_examples_are_the_default(checkpoint: str, tmp_path: Path) -> None:
    page, picture = tmp_path / "words.html", tmp_path / "words.png"
    shown = run("-m", checkpoint, "--html", str(page), "--png", str(picture))
    data = assert_self_contained(page.read_text(encoding="utf-8")).data
    for use in EXAMPLES:
        assert f"{use.word}: {use.sentence}" in shown
    assert [use["sentence"] for use in data["uses"]] == [use.sentence for use in EXAMPLES]
    assert f"{data['contextual']['cosines'][0][1]:.3f}" in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_uses_of_your_own(checkpoint: str, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("2 2\ndog 1 0\ncity 0 1\n", encoding="utf-8")
    own = ["--in", "dog=my dog is cute", "--in", "city=new york city"]
    plain = json.loads(run("-m", checkpoint, *own, "--layer", "1", "--word2vec", str(vectors), "--json"))
    assert [use["word"] for use in plain["uses"]] == ["dog", "city"]
    assert plain["fixed"]["cosines"] == [[1.0, 0.0], [0.0, 1.0]]
    assert plain["contextual"]["name"] == "layer 1 of 2"


def test_a_word_outside_its_sentence(checkpoint: str) -> None:
    with pytest.raises(BertkitError, match="does not occur"):
        run("-m", checkpoint, "--in", "dog=new york city")
