"""The sentence splitter: a hand-written set of hard places (| marks where sentences end), and nothing ever lost."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertkit.text.sentences import split_sentences
from tests.tokenizer.strings import FIXED, real_lines

CASES = """
The man went to the store.| He bought a gallon of milk.
Really?| Yes!| No way?!| What...| Then it ended.
He met Mr. Smith, Mrs. Jones and Dr. Brown on St. John's Road.| They talked.
George W. Bush and J. R. R. Tolkien met V. I. Lenin.| They argued.
World War I ended in 1918.| World War II began in 1939.
It was after World War I.| Germany was poor.
She moved to the U.S. Army base.| He left the U.S.| The flight was long.
It costs $3.14 or 2.5 % more, i.e. Almost nothing, e.g. Pennies.| Fine.
See Fig. 3, Vol. II, No. 5 and pp. 7 of ch. 9.| Good.
He said no.| Then he left.
It was Act No. VII of 2002.| It passed.
It was built c. 1900 by Acme Inc.| The firm closed.
It was built by Acme Inc. Chairman Jones.| He smiled.
He works for Smith & Co. Ltd. in London, Jr. Partner and all.| Yes.
At 5 p.m. Friday we left.| At 6 p.m.| We ate.
She has a Ph.D. Thesis and all.| Good.
On Jan. 5 it rained.| On 6 Feb. 2010 it snowed.
"Help!" he cried.| "Who is there?"| "It is I."
He said "Stop."| She did not.| ("Why?" he asked.)| Then silence.
It was the "era".[12]| In 1999 it ended.
It ended (in 1999.)| Then it began.| [It was odd.]| So be it.
1. The first thing.| It is short.
In 1990.| 50 people came.
Visit example.com or www.test.org/a.b today.| Version 2.0.1 is out.
I can't.| John won't.
Élan is rare.| École is not. étude. était la fin.
¿Qué tal?| ¡Muy bien!| «Ça va.»| „Gut.“| Er ging.
Wait…| What?| It went on ... and on.
The Dow rose vs. The Nasdaq.
iPhone sales rose. iPad sales fell.
我喜欢狗。|他喜欢猫！|真的吗？|“是的。”|好。
彼は「はい。」と言った。|それから帰った。
यह पहला है।| यह दूसरा है।
Roe v. Wade was decided.| So was Brown v. Board.
E. coli and S. aureus are bacteria.| They grow.
"""


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_hard_places(case: str) -> None:
    assert split_sentences(case.replace("|", "")) == [part.strip() for part in case.split("|") if part.strip()]


PIECES = st.sampled_from(
    [
        *".!?… \"'”)](“[。！？」と\n\t",
        "...",
        "Mr",
        "J",
        "I",
        "U.S",
        "No",
        "5",
        "The",
        "word",
        "É",
        "中",
        "।",
        " ",
        " ",
        "—",
    ]
)


@settings(max_examples=400)
@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60))
@example("A.\u00a0B.\n\nC. ")
@example("。.\u3000A")
def test_nothing_is_lost(paragraph: str) -> None:
    sentences = split_sentences(paragraph)
    assert squeezed("".join(sentences)) == squeezed(paragraph)
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    place = 0
    for sentence in sentences:  # each is a stretch of the paragraph, in order
        place = paragraph.index(sentence, place) + len(sentence)


def test_nothing_is_lost_of_odd_and_real_text() -> None:
    for paragraph in [*FIXED, *real_lines(2000)]:
        assert squeezed("".join(split_sentences(paragraph))) == squeezed(paragraph)


def test_real_paragraphs_have_sentences_of_sensible_length() -> None:
    paragraphs = real_lines(2000)
    if not paragraphs:
        pytest.skip("the corpus of shared/data is not there; set BERTKIT_DATA")
    lengths = [len(sentence) for paragraph in paragraphs for sentence in split_sentences(paragraph)]
    assert 80 < sum(lengths) / len(lengths) < 160
    assert sum(length < 10 for length in lengths) / len(lengths) < 0.03


def test_a_long_paragraph_takes_time_in_proportion() -> None:
    # Runs of stops, closing marks and spaces without a sentence after them must not be tried from every place.
    for filler in (".", ")", " ", '"', "。", "[1]", ". "):
        assert squeezed("".join(split_sentences("A" + filler * 20_000))) == squeezed("A" + filler * 20_000)
