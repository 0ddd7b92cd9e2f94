"""Scripts by Unicode's names and languages by small words: enough to see that a corpus is mixed."""

import pytest

from bertkit.text.function_words import FUNCTION_WORDS
from bertkit.text.languages import UNCLEAR, LanguageCounts, count_scripts, fold, script_of
from bertkit.text.samples import sample_documents

PASSAGES = {
    "English": "The boat had left the harbour before the sun was up, and nobody on the shore knew when it would return.",
    "German": "Das Boot hatte den Hafen verlassen, bevor die Sonne aufging, und niemand wusste, wann es wieder zurück ist.",
    "French": "Le bateau a quitté le port avant le lever du soleil, et les gens sur la plage ne savaient pas où il était.",
    "Spanish": "El barco salió del puerto antes de la salida del sol, y los que estaban en la playa no sabían que pasó.",
    "Italian": "La nave è partita dal porto prima che il sole sorgesse, e nessuno della città sapeva quando sarebbe tornata.",
    "Dutch": "De boot was uit de haven vertrokken voor het licht werd, en niemand op het strand wist waar hij naar toe was.",
    "Russian": "Лодка ушла из гавани до восхода солнца, и никто на берегу не знал, когда она вернется и что с ней было.",
    "Ukrainian": "Човен вийшов із гавані до сходу сонця, і ніхто на березі не знав, коли він повернеться та що з ним було.",
    "Greek script": "Το πλοίο έφυγε από το λιμάνι πριν από την ανατολή του ήλιου και κανείς δεν ήξερε πότε θα γυρίσει.",
    "Chinese": "船在日出之前离开了港口，岸上没有人知道它什么时候回来。",
    "Japanese": "船は日の出の前に港を出て、いつ帰るのか岸では誰も知らなかった。",
    "Korean": "배는 해가 뜨기 전에 항구를 떠났고 언제 돌아올지 아무도 몰랐다.",
}


def guess_language(passage: str) -> str:
    counts = LanguageCounts()
    counts.add(passage)
    (found,) = counts.languages
    return found


@pytest.mark.parametrize(("language", "passage"), PASSAGES.items())
def test_running_text_shows_its_language(language: str, passage: str) -> None:
    assert guess_language(passage) == language
    assert guess_language(fold(passage)) == language  # an uncased vocabulary loses accents


@pytest.mark.parametrize(
    "text", ["", "1984 + 17 = 2001", "Miller, Smith, Jones, Baker, Cook, Mason, Tailor, Wood, Hill"]
)
def test_what_is_no_running_text_is_unclear(text: str) -> None:
    assert guess_language(text) == UNCLEAR


def test_the_sample_text_is_english() -> None:
    counts = LanguageCounts()
    for document in sample_documents():
        counts.add(" ".join(document))
    assert counts.shares(counts.languages)["English"] > 0.95
    assert counts.shares(counts.scripts) == {"Latin": 1.0}
    assert 0.01 < counts.capital_share < 0.1


def test_scripts_are_counted_by_letters() -> None:
    assert count_scripts("Ab, бв 12 !") == {"Latin": 2, "Cyrillic": 2}
    assert [script_of(letter) for letter in "é٣中"] == ["Latin", "", "Cjk"]


def test_every_language_has_enough_words() -> None:
    for language, words in FUNCTION_WORDS.items():
        assert len(set(fold(words).split())) >= 25, language
