"""The pages in a real browser: no script fails, keys and pointer work."""

import json
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from bertkit.inference.explain import explain
from bertkit.inference.words import compare_words
from bertkit.pages import attention_page, demo_page, explain_page, words_page
from tests.browser import browser
from tests.pages.test_pages import HOSTILE, attention, report
from tests.pages.tiny import tiny_bert

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=2000",
    "--dump-dom",
]
CATCH = "<script>window.failures = []; onerror = (message) => failures.push(String(message)); window.alert = onerror;</script>"
KEY = "const key = (node, name) => node.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true}));"


def ask(page: str, script: str, folder: Path) -> dict[str, Any]:
    """Open the page, run a script that returns something, and bring that and all failures back."""
    answer = f"<script>{KEY} const answer = (() => {{ {script} }})();"
    answer += "const out = document.createElement('pre'); out.id = 'out'; out.textContent = JSON.stringify({answer, failures});"
    answer += "document.body.append(out);</script>"
    file = folder / "page.html"
    file.write_text(
        page.replace("<head>", "<head>" + CATCH, 1).replace("</body>", answer + "</body>"), encoding="utf-8"
    )
    command = [browser(), *FLAGS, f"--user-data-dir={folder / 'profile'}", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(r'<pre id="out">(.*?)</pre>', shown, re.DOTALL)
    assert found is not None
    result: dict[str, Any] = json.loads(unescape(found[1]))
    assert result["failures"] == []
    return result


def test_attention_by_keys_and_pointer(tmp_path: Path) -> None:
    given = attention(token=HOSTILE)
    script = """
        const text = (selector) => document.querySelector(selector).textContent, start = text('#map-title');
        key(document.querySelector('.heads'), 'ArrowRight'); key(document.querySelector('.heads'), 'ArrowDown');
        const map = document.querySelector('.map canvas'); key(map, 'ArrowDown'); key(map, 'ArrowRight'); key(map, 'ArrowDown');
        const stage = document.querySelector('.stage'); key(stage, 'ArrowDown');
        return {start, title: text('#map-title'), cell: text('#map-value'), images: document.images.length,
            shares: [...document.querySelectorAll('ol.right b')].map((b) => Number(b.textContent)), heads: document.querySelectorAll('.heads button').length};
    """
    found = ask(attention_page(given, model="m"), script, tmp_path)["answer"]
    assert found["start"] == "Layer 1 of 2, mean of all heads"
    assert found["title"] == "Layer 2 of 2, head 1"
    assert f"{given.weights[1, 0, 1, 1]:.4f}" in found["cell"]
    assert found["shares"] == pytest.approx(given.weights[1, 0, 0].tolist(), abs=1e-3)
    assert (found["images"], found["heads"]) == (0, 6)


def test_explain_adds_up_before_the_reader(tmp_path: Path) -> None:
    bert = tiny_bert()
    found = explain(bert.model, bert.tokenizer, HOSTILE, "he likes playing", mask=True, seed=1)
    script = """
        key(document.getElementById('figure2'), 'ArrowRight'); key(document.getElementById('figure2'), 'ArrowDown');
        return Object.fromEntries(['adding', 'losses', 'guesses', 'next', 'masking', 'pieces'].map((id) => [id, document.getElementById(id).textContent]));
    """
    shown = ask(explain_page(found.to_json(), model="m"), script, tmp_path)["answer"]
    assert f"{abs(found.embeddings.sum[2][1]):.4f}" in shown["adding"]
    assert found.masking is not None
    assert found.next_sentence is not None
    for loss in (found.losses.mlm, found.losses.nsp, found.losses.total):
        assert f"{loss:.4f}" in shown["losses"]
    for choice in found.masking.choices:
        assert all(guess.token in shown["guesses"] for guess in choice.top)
        assert f"{choice.draw:.4f}" in shown["masking"]
    assert f"{found.next_sentence.p_next:.4f}" in shown["next"]
    assert "img" in shown["pieces"]


def test_explain_without_anything_to_predict(tmp_path: Path) -> None:
    bert = tiny_bert(heads=())
    for mask, b in ((True, "he likes playing"), (False, None)):
        found = explain(bert.model, bert.tokenizer, "my dog is cute", b, mask=mask, seed=1)
        script = "return document.getElementById('losses').textContent;"
        assert "no loss" in ask(explain_page(found.to_json(), model="m"), script, tmp_path)["answer"]


def test_words_and_demo_show_their_figures(tmp_path: Path) -> None:
    found = compare_words(tiny_bert())
    script = "return {cells: [...document.querySelectorAll('.cosines td')].map((cell) => cell.textContent), marks: document.querySelectorAll('.plane g').length};"
    shown = ask(words_page(found.to_json(), model="m"), script, tmp_path)["answer"]
    assert shown["cells"][1] == f"{found.fixed.cosines[0][1]:.3f}"
    assert shown["marks"] == 5  # both uses of one word share a mark on the fixed map
    given = report(text=HOSTILE)
    script = """
        key(document.querySelector('.curve'), 'ArrowLeft');
        return {text: document.querySelector('main').textContent, lines: document.querySelectorAll('.curve path').length,
            grid: document.querySelectorAll('.curve .grid').length, images: document.images.length};
    """
    shown = ask(demo_page(given), script, tmp_path)["answer"]
    assert (shown["lines"], shown["images"]) == (5, 0)
    assert shown["grid"] > 2
    assert f"{given.curve[2].heldout_mlm_loss:.4f}" in shown["text"]
    assert f"{given.num_parameters:,}" in shown["text"]
    assert HOSTILE in shown["text"]
