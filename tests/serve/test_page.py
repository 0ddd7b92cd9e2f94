"""The page in a real browser at a real server: every section by keys alone, phone, refusals, hostile texts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import need

need("fastapi", "uvicorn", "playwright")

from playwright.sync_api import Browser, Page  # noqa: E402

from bertkit.inference.bert import Bert  # noqa: E402
from bertkit.inference.words import Occurrence, compare_words  # noqa: E402
from tests.serve.page_browsing import (  # noqa: E402
    choose_by_keys,
    fill_by_keys,
    focused,
    open_browser,
    open_page,
    result_of,
    tab_to,
)
from tests.serve.serving import running, tiny  # noqa: E402

SECTIONS = ["fill-mask", "compare", "words", "next-sentence", "classify", "entities", "answer", "attention"]
HOSTILE = "<img src=x onerror=alert(1)> 🙂"


@pytest.fixture(scope="module")
def models(berts: dict[str, Bert]) -> dict[str, Bert]:
    """One of each kind, and a second that was only pre-trained."""
    return {**berts, "other": tiny(5, ("pooler", "mlm", "nsp"), num_layers=3)}


@pytest.fixture(scope="module")
def folder(models: dict[str, Bert], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    for name, bert in models.items():
        bert.save(made / name)
    return made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(chromium: Browser, models: dict[str, Bert], folder: Path) -> Iterator[str]:
    with running(folder, *(str(folder / name) for name in models), "--shared") as server:
        yield f"http://127.0.0.1:{server.port}/"


@pytest.fixture
def page(chromium: Browser, url: str) -> Iterator[Page]:
    with open_page(chromium, url) as opened:
        yield opened


def percent(share: float) -> str:
    """As the page writes a probability."""
    if 0 < share < 0.0001:
        return "< 0.01 %"
    return f"{100 * share:.{2 if share < 0.1 or share > 0.999 else 1}f} %"


COLOURS = """(() => { const of = (place, name) => getComputedStyle(document.querySelector(place))[name];
    return [of('body', 'color'), of('body', 'backgroundColor'), of('mark', 'color'), of('mark', 'backgroundColor')]; })()"""


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


def bars(section: Any) -> dict[str, str]:
    rows = section.locator(".bars tr").all()
    return {row.locator("th").inner_text(): row.locator(".number").inner_text() for row in rows}


def test_the_page_offers_what_the_models_can_do(page: Page) -> None:
    assert [link.get_attribute("href") for link in page.locator("nav a").all()] == [f"#{name}" for name in SECTIONS]
    assert page.locator("#serving").inner_text() == "serving 5 models"
    for name, able in {"fill-mask": ["base", "other"], "classify": [], "words": ["base", "reviews", "tags"]}.items():
        offered = page.locator(f"#{name}-model option").all_text_contents()
        assert offered[: len(able)] == able
        assert bool(offered) == bool(able)


def test_a_key_is_asked_for_and_without_a_head_there_is_no_section(chromium: Browser, folder: Path) -> None:
    with (
        running(folder, str(folder / "tags"), env={"BERTKIT_API_KEYS": "secret 1"}) as server,
        open_page(chromium, f"http://127.0.0.1:{server.port}/", expect=("401",)) as page,
    ):
        page.locator("#key-text:focus").wait_for()
        page.keyboard.insert_text("wrong")
        page.keyboard.press("Enter")
        assert "API key" in page.locator("#key-error:not([hidden])").inner_text()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text("secret 1")
        page.keyboard.press("Enter")
        page.locator("nav a[aria-current]").wait_for()
        shown = [link.get_attribute("href") for link in page.locator("nav a").all()]
        assert shown == ["#compare", "#words", "#entities", "#attention"]
        assert page.locator("#key").is_hidden()
        page.locator("#compare button.main").click()
        assert re.fullmatch(r"−?\d\.\d{3}", result_of(page.locator("#compare")).locator(".big").inner_text())


def test_fill_mask_by_keys(page: Page, models: dict[str, Bert]) -> None:
    text = "🙂 The man went to the [MASK] and bought [MASK]."
    section = choose_by_keys(page, "fill-mask")
    result = fill_by_keys(page, section, text)
    first, second = models["base"].fill_mask(text)
    expected = [first.candidates[0].token, second.candidates[0].token]
    assert result.locator("mark").all_inner_texts() == expected
    assert result.locator(".text").inner_text() == f"🙂 The man went to the {expected[0]} and bought {expected[1]}."
    shown = [row.inner_text() for row in section.locator(".bars .number").all()]
    assert shown == [percent(one.probability) for mask in (first, second) for one in mask.candidates]
    figures = result.locator(".figures").inner_text()
    tokens = len(models["base"].tokenizer.encode(text).ids)
    assert re.search(rf"ms in all · [\d.]+ ms on the server · {tokens} tokens · base", figures)


def test_another_model_is_chosen_by_keys(page: Page, models: dict[str, Bert]) -> None:
    section = choose_by_keys(page, "fill-mask")
    tab_to(page, "#fill-mask-model")
    page.keyboard.press("ArrowDown")
    tab_to(page, ".examples button")
    page.keyboard.press("Enter")
    text = section.locator("textarea").input_value()
    assert result_of(section).locator("mark").inner_text() == models["other"].fill_mask(text)[0].candidates[0].token


def test_insert_mask_stands_at_the_cursor(page: Page) -> None:
    section = choose_by_keys(page, "fill-mask")
    section.locator("textarea").fill("The dog")
    page.keyboard.press("End")
    tab_to(page, "button[type=button]")
    page.keyboard.press("Enter")
    assert section.locator("textarea").input_value() == "The dog [MASK]"
    page.keyboard.press("Control+Enter")
    assert result_of(section).locator("mark").count() == 1


def test_compare_by_keys(page: Page, models: dict[str, Bert]) -> None:
    section = choose_by_keys(page, "compare")
    result = fill_by_keys(page, section, "The dog sleeps.", "A cat is asleep.")
    cosine = models["base"].similarity("The dog sleeps.", "A cat is asleep.")
    assert result.locator(".big").inner_text() == f"{cosine:.3f}".replace("-", "−")
    section.locator("textarea").last.fill("Stocks fell.")
    section.locator("textarea").last.press("Control+Enter")
    section.locator(".earlier tbody tr").wait_for()
    assert section.locator(".earlier tbody td").all_inner_texts()[1:] == ["The dog sleeps.", "A cat is asleep."]


def test_words_by_keys(page: Page, models: dict[str, Bert]) -> None:
    section = choose_by_keys(page, "words")
    lines = ["🙂 the bank of the river", "money in the bank", "store = the man went to the store"]
    result = fill_by_keys(page, section, "bank", "\n".join(lines))
    uses = [Occurrence("bank", lines[0]), Occurrence("bank", lines[1]), Occurrence("store", lines[2][8:])]
    found = compare_words(models["base"], uses).contextual
    cells = result.locator(".cosines").first.locator("tbody td").all_inner_texts()
    assert cells == [f"{cosine:.2f}".replace("-", "−") for row in found.cosines for cosine in row]
    assert result.locator("mark").all_inner_texts() == ["bank", "bank", "store"]
    drawn = [text.split() for text in result.locator(".plane .in").all_text_contents()]
    assert sorted(int(number) for group in drawn for number in group) == [1, 2, 3]


def test_next_sentence_by_keys(page: Page, models: dict[str, Bert]) -> None:
    section = choose_by_keys(page, "next-sentence")
    fill_by_keys(page, section, "The man went to the store.", "He bought milk.")
    follows = models["base"].next_sentence("The man went to the store.", "He bought milk.")
    assert bars(section) == {"follows": percent(follows), "does not follow": percent(1 - follows)}


def test_classify_by_keys_and_a_long_text_is_told(page: Page, models: dict[str, Bert]) -> None:
    section = choose_by_keys(page, "classify")
    fill_by_keys(page, section, "The milk was cold")
    found = models["reviews"].predict("The milk was cold").probabilities
    assert bars(section) == {label: percent(share) for label, share in found.items()}
    assert section.locator(".note").count() == 0
    section.locator("textarea").first.fill("the dog sleeps " * 40)
    section.locator("textarea").first.press("Control+Enter")
    assert "windows" in section.locator(".note").inner_text()


def test_entities_by_keys(page: Page, models: dict[str, Bert]) -> None:
    text = "🙂🙂 The woman went to the store to buy eggs, and the boy went home."
    section = choose_by_keys(page, "entities")
    result = fill_by_keys(page, section, text)
    entities = models["tags"].tag(text).entities
    assert entities
    shown = result.locator(".entity").evaluate_all("all => all.map(one => one.firstChild.textContent)")
    assert shown == [entity.text for entity in entities]
    rows = [row.locator("td").all_inner_texts() for row in result.locator("tbody tr").all()]
    assert rows == [[entity.text, entity.kind, percent(entity.confidence)] for entity in entities]


def test_answer_by_keys_with_runners_up(page: Page, models: dict[str, Bert]) -> None:
    question, context = "What did he buy?", "🙂 The man went to the store. He bought milk and bread, then walked home."
    section = choose_by_keys(page, "answer")
    result = fill_by_keys(page, section, question, context)
    found = models["spans"].answer(question, context)
    assert result.locator("mark").inner_text() == found.text
    shares = [found.confidence, *(span.confidence for span in found.runners_up)]
    assert result.locator(".answers b").all_inner_texts() == list(map(percent, shares))
    tab_to(page, ".answers button[aria-pressed=false]")
    page.keyboard.press("Enter")
    second = found.runners_up[0]
    assert result.locator("mark").inner_text() == second.text
    before = result.locator(".text").evaluate("node => node.firstChild.textContent")
    assert before == context[: second.start]


def test_attention_by_keys(page: Page, models: dict[str, Bert]) -> None:
    section = choose_by_keys(page, "attention")
    result = fill_by_keys(page, section, "the dog", "he sleeps")
    found = models["base"].attention("the dog", "he sleeps")
    tab_to(page, "#attention-layer")
    page.keyboard.press("ArrowDown")
    section.locator("h3", has_text="Layer 2 of 2, head 1").wait_for()
    assert focused(page, "at.id") == "attention-layer"
    tab_to(page, ".heads button")
    page.keyboard.press("ArrowRight")
    assert section.locator("h3", has_text="Layer 2 of 2, head 2").is_visible()
    tab_to(page, ".map canvas")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert f"{found.weights[1, 1, 1, 1]:.4f}" in result.locator("output").inner_text()
    tab_to(page, ".stage")
    page.keyboard.press("ArrowDown")
    assert result.locator(".right b").all_inner_texts() == [f"{weight:.3f}" for weight in found.weights[1, 1, 0]]
    assert result.locator(".left .piece").all_inner_texts() == found.tokens


def test_a_refusal_is_told_in_the_servers_words(chromium: Browser, url: str) -> None:
    with open_page(chromium, url, expect=("422",)) as page:
        section = choose_by_keys(page, "fill-mask")
        fill_by_keys(page, section, "nothing is missing here")
        assert "no [MASK]" in section.locator("[role=alert]").inner_text()
        fill_by_keys(page, choose_by_keys(page, "fill-mask"), "The [MASK].")
        assert section.locator("[role=alert]").count() == 0


def test_a_server_that_is_gone_is_told(chromium: Browser, url: str) -> None:
    with open_page(chromium, url, expect=("ERR_INTERNET_DISCONNECTED",)) as page:
        page.context.set_offline(True)
        page.locator("#fill-mask button.main").click()
        assert "cannot be reached" in result_of(page.locator("#fill-mask")).locator("[role=alert]").inner_text()


def test_attention_keeps_its_size_while_another_section_is_shown(page: Page) -> None:
    section = choose_by_keys(page, "attention")
    canvas = fill_by_keys(page, section, "the dog sleeps").locator(".map canvas")
    wide = canvas.bounding_box()
    choose_by_keys(page, "compare")
    page.set_viewport_size({"width": 360, "height": 700})
    choose_by_keys(page, "attention")
    narrow = canvas.bounding_box()
    assert wide is not None
    assert narrow is not None
    assert 150 < narrow["width"] <= 330
    assert narrow["width"] <= wide["width"]


def test_texts_stay_texts(page: Page) -> None:
    for name, fields in {"fill-mask": 1, "entities": 1, "answer": 2, "attention": 2, "compare": 2}.items():
        section = choose_by_keys(page, name)
        fill_by_keys(page, section, *[HOSTILE + (" [MASK]" if name == "fill-mask" else "")] * fields)
        assert section.locator(".figures").count() == 1
    assert page.locator("img, section script").count() == 0


def test_a_phone_never_scrolls_sideways(chromium: Browser, url: str) -> None:
    size = {"width": 360, "height": 740}
    with open_page(chromium, url, viewport=size, color_scheme="dark", has_touch=True) as page:
        for name in SECTIONS:
            page.goto(f"{url}#{name}")
            section = page.locator(f"section#{name}:not([hidden])")
            section.locator("button.main").tap()
            assert result_of(section).locator(".figures").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth") == 360, name
        page.locator("#facts summary").tap()
        fill_by_keys(page, choose_by_keys(page, "entities"), "a" * 300)
        fill_by_keys(page, choose_by_keys(page, "attention"), "the dog sleeps " * 14)
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_light_and_dark(page: Page) -> None:
    page.locator("#fill-mask button.main").click()
    result_of(page.locator("#fill-mask"))
    lights = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours = page.evaluate(COLOURS)
        lights[scheme] = [brightness(colour) for colour in colours]
    ink, paper, marked, mark = range(4)
    assert lights["light"][paper] > 230
    assert lights["dark"][paper] < 60
    for found in lights.values():
        assert abs(found[ink] - found[paper]) > 150
        assert abs(found[marked] - found[mark]) > 100


def test_everything_has_a_name_for_those_who_listen(page: Page) -> None:
    nameless = page.evaluate(
        """[...document.querySelectorAll('input, textarea, select, button, canvas[tabindex], nav, section, form')].filter((node) =>
            !(node.labels?.length || node.getAttribute('aria-label') || node.getAttribute('aria-labelledby') || node.textContent.trim()))
            .map((node) => node.outerHTML)"""
    )
    assert nameless == []
    section = choose_by_keys(page, "next-sentence")
    fill_by_keys(page, section, "He sat down.", "He got up.")
    assert section.locator("[role=status]").inner_text().startswith("Follows: ")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
