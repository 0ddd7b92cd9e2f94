"""Every route says what offline use says, in the shape that its clients expect."""

import asyncio
import base64
import threading
import warnings
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from pydantic_core import to_json
from starlette.testclient import TestClient

from bertkit.errors import LongTextWarning
from bertkit.inference.bert import Bert
from bertkit.inference.words import Occurrence, compare_words
from tests.serve.serving import WORDS, client_of, make_app

TEXTS = ["my dog is cute", "", "he likes playing in new york . the fair is fun", "unbiased"]
LONG = " ".join(WORDS * 2)  # more tokens than the models have positions


def ask(client: TestClient, route: str, **body: Any) -> Any:
    answer = client.post(route, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: TestClient, status: int, route: str, **body: Any) -> str:
    answer = client.post(route, json=body)
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"error", "error_type"}
    assert "\n" not in told["error"]
    return str(told["error"])


def test_embed_equals_offline(client: TestClient, berts: dict[str, Bert]) -> None:
    offline = berts["base"].embed(TEXTS, normalize=True)
    np.testing.assert_allclose(ask(client, "/embed", inputs=TEXTS), offline, atol=1e-6)
    np.testing.assert_allclose(ask(client, "/embed", inputs=TEXTS[0]), offline[:1], atol=1e-6)
    raw = ask(client, "/embed", inputs=TEXTS, normalize=False)
    np.testing.assert_array_equal(np.array(raw, np.float32), berts["base"].embed(TEXTS))


def test_the_first_numbers_alone_have_length_one(client: TestClient, berts: dict[str, Bert]) -> None:
    (found,) = ask(client, "/embed", inputs=TEXTS[0], dimensions=8)
    whole = berts["base"].embed(TEXTS[0])[:8]
    np.testing.assert_allclose(found, whole / np.linalg.norm(whole), atol=1e-6)
    assert "32" in refused(client, 422, "/embed", inputs="x", dimensions=33)


def test_embed_all_gives_every_token(client: TestClient, berts: dict[str, Bert]) -> None:
    found = ask(client, "/embed_all", inputs=TEXTS)
    for text, vectors in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(vectors, berts["base"].encode(text).vectors, atol=1e-6)


def test_token_ids_stand_for_their_text(client: TestClient, berts: dict[str, Bert]) -> None:
    texts = [*TEXTS, "my [MASK] is unknownish"]
    ids = [[token["id"] for token in tokens] for tokens in ask(client, "/tokenize", inputs=texts)]
    expected = ask(client, "/embed", inputs=texts)
    np.testing.assert_allclose(ask(client, "/embed", inputs=ids[0]), expected[:1], atol=1e-6)
    np.testing.assert_allclose(ask(client, "/embed", inputs=[texts[0], *ids[1:]]), expected, atol=1e-6)
    assert ask(client, "/embed_all", inputs=ids[0]) == ask(client, "/embed_all", inputs=TEXTS[0])
    bare, strange = ids[0][1:-1], [ids[0][0], 10**6, ids[0][-1]]
    assert "[CLS]" in refused(client, 422, "/embed", inputs=bare)  # as of another model's tokenizer: nothing is guessed
    assert "no token id" in refused(client, 422, "/embed", inputs=strange)
    assert "[CLS]" in refused(client, 422, "/embed", inputs=[ids[0][0]])


def test_similarity_equals_offline(client: TestClient, berts: dict[str, Bert]) -> None:
    body = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    found = ask(client, "/similarity", inputs=body, parameters={"truncate": False})
    np.testing.assert_allclose(found, berts["base"].similarity([TEXTS[0]], TEXTS[1:])[0], atol=1e-6)


def test_predict_of_one_of_a_pair_and_of_many(client: TestClient, berts: dict[str, Bert]) -> None:
    offline = berts["reviews"].predict([("my dog", None), ("my dog", "is cute")])
    for found, expected in zip(
        [ask(client, "/predict", inputs="my dog"), ask(client, "/predict", inputs=["my dog", "is cute"])],
        offline,
        strict=True,
    ):
        assert [one["label"] for one in found] == sorted(
            expected.probabilities, key=lambda name: -expected.probabilities[name]
        )
        for one in found:
            assert one["score"] == pytest.approx(expected.probabilities[one["label"]], abs=1e-6)
    many = ask(client, "/predict", inputs=[["my dog"], ["my dog", "is cute"]])
    assert [scores[0]["label"] for scores in many] == [one.label for one in offline]
    assert "at most 2" in refused(client, 422, "/predict", inputs=["a", "b", "c"])


def test_raw_scores_are_logits(client: TestClient) -> None:
    raw = ask(client, "/predict", inputs="my dog", raw_scores=True)
    shares = ask(client, "/predict", inputs="my dog")
    exponents = np.exp([one["score"] for one in raw])
    np.testing.assert_allclose(exponents / exponents.sum(), [one["score"] for one in shares], atol=1e-6)
    assert abs(sum(exponents) - 1) > 1e-3


def test_tokens_have_their_characters(client: TestClient) -> None:
    text = "My Dögs [MASK]"
    (tokens,) = ask(client, "/tokenize", inputs=text)
    assert tokens[0] == {"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}
    inner = tokens[1:-1]
    assert [token["text"] for token in inner] == ["My", "Dög", "s", "[MASK]"]
    assert all(text[token["start"] : token["stop"]] == token["text"] for token in inner)
    assert [token["special"] for token in inner] == [False, False, False, True]
    assert ask(client, "/tokenize", inputs=text, add_special_tokens=False) == [inner]


def test_tokens_of_a_request_are_limited_on_every_route(berts: dict[str, Bert]) -> None:
    with client_of(berts, max_request_tokens=12) as client:
        for route in ("/embed", "/tokenize", "/entities"):
            answer = client.post(route, json={"inputs": ["my dog is cute", "my dog is cute"]})
            assert answer.headers.get("x-compute-tokens") == "12", route
            assert "12 tokens" in refused(client, 413, route, inputs=["my dog is cute", "he likes playing in new york"])


def test_blanks_next_sentences_answers_entities(client: TestClient, berts: dict[str, Bert]) -> None:
    (masks,) = ask(client, "/fill-mask", inputs="my [MASK] is [MASK]", top_k=3)
    offline = berts["base"].fill_mask("my [MASK] is [MASK]", top_k=3)
    assert [[c["token"] for c in mask["candidates"]] for mask in masks] == [
        [c.token for c in mask.candidates] for mask in offline
    ]
    ((mask,),) = ask(client, "/fill-mask", inputs="my [MASK]", candidates=["dog", "cat"])
    assert {c["token"] for c in mask["candidates"]} == {"dog", "cat"}
    (next_,) = ask(client, "/next-sentence", inputs=["my dog", "is cute"])
    assert next_["probability"] == pytest.approx(berts["base"].next_sentence("my dog", "is cute"), abs=1e-6)
    assert len(ask(client, "/next-sentence", inputs=[["a", "b"], ["c", "a"]])) == 2
    context = "my dog is cute . he likes playing in new york"
    found = ask(client, "/answer", question="who likes playing ?", context=context, top_k=3)
    expected = berts["spans"].answer("who likes playing ?", context, top_k=3)
    assert (found["text"], found["start"]) == (expected.text, expected.start)
    assert context[found["start"] : found["end"]] == found["text"]
    assert [one["text"] for one in found["runners_up"]] == [one.text for one in expected.runners_up]
    (tagged,) = ask(client, "/entities", inputs=context)
    offline_tags = berts["tags"].tag(context)
    assert [word["tag"] for word in tagged["words"]] == list(offline_tags.tags)
    assert [one["text"] for one in tagged["entities"]] == [one.text for one in offline_tags.entities]


def test_words_and_attention(client: TestClient, berts: dict[str, Bert]) -> None:
    uses = [("fair", "a fair judgement"), ("fair", "fun fair in new york"), ("cute", "he is cute")]
    found = ask(client, "/words", inputs=[{"word": word, "text": text} for word, text in uses])
    expected = compare_words(berts["base"], [Occurrence(*use) for use in uses])
    np.testing.assert_allclose(found["contextual"]["cosines"], expected.contextual.cosines, atol=1e-6)
    np.testing.assert_allclose(found["fixed"]["points"], expected.fixed.map.points, atol=1e-5)
    attention = ask(client, "/attention", inputs=["my dog", "is cute"], head=2)
    weights = berts["base"].attention("my dog", "is cute").weights
    np.testing.assert_allclose(attention["weights"], weights[:, 1:2], atol=1e-6)
    assert (attention["layers"], attention["heads"]) == ([1, 2], [2])
    first = ask(client, "/attention", inputs=["my dog", "is cute"], layer=1)
    np.testing.assert_allclose(first["weights"], weights[:1], atol=1e-6)
    assert [token["segment"] for token in attention["tokens"]] == [0, 0, 0, 0, 1, 1, 1]
    assert "layers 1 to 2" in refused(client, 422, "/attention", inputs="my dog", layer=3)
    assert "greater than or equal to 1" in refused(client, 422, "/attention", inputs="my dog", layer=0)


def test_what_is_cut_or_split_is_told(client: TestClient, berts: dict[str, Bert]) -> None:
    def headers(route: str, **body: Any) -> tuple[str, str]:
        answer = client.post(route, json=body)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-bertkit-truncated"], answer.headers["x-bertkit-windows"]

    assert headers("/embed", inputs=[LONG, "my dog", LONG], truncate=True) == ("2", "0")
    assert headers("/embed", inputs=[LONG, "my dog", LONG]) == ("0", "2")
    assert headers("/embed", inputs=["my dog"]) == ("0", "0")
    assert headers("/predict", inputs=LONG, truncate=True) == ("1", "0")
    assert headers("/predict", inputs=LONG) == ("0", "1")
    assert headers("/embed_all", inputs=LONG, truncate=True) == ("1", "0")
    assert headers("/answer", question="who ?", context=LONG) == ("0", "1")
    assert headers("/answer", question=LONG, context="my dog is cute") == ("1", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongTextWarning)
        cut, split = (berts["base"].embed(LONG, long=how, normalize=True) for how in ("truncate", "window"))
    np.testing.assert_allclose(ask(client, "/embed", inputs=LONG, truncate=True)[0], cut, atol=1e-6)
    np.testing.assert_allclose(ask(client, "/embed", inputs=LONG)[0], split, atol=1e-6)
    for route in ("/embed", "/embed_all"):
        assert "48" in refused(client, 413, route, inputs=LONG, truncate=False)
    assert "48" in refused(client, 413, "/fill-mask", inputs="[MASK] " + LONG)
    assert "48" in refused(client, 413, "/attention", inputs=LONG)


def test_cutting_on_the_left_keeps_the_end(client: TestClient, berts: dict[str, Bert]) -> None:
    words = LONG.split()
    pieces = [len(ids) for ids in berts["base"].tokenizer.encode_ids(words)]
    kept, room = len(words), 46
    while room >= pieces[kept - 1]:
        kept -= 1
        room -= pieces[kept]
    expected = berts["base"].embed(" ".join(words[kept:]), normalize=True)
    answer = client.post("/embed", json={"inputs": LONG, "truncate": True, "truncation_direction": "Left"})
    np.testing.assert_allclose(answer.json()[0], expected, atol=1e-6)
    assert answer.headers["x-bertkit-truncated"] == "1"


def test_a_pair_that_fits_may_stand_beside_a_text_that_is_cut_on_the_left(client: TestClient) -> None:
    body = {"truncate": True, "truncation_direction": "Left"}
    assert len(ask(client, "/predict", inputs=[[LONG], ["my dog", "is cute"]], **body)) == 2
    assert "single texts" in refused(client, 422, "/predict", inputs=[[LONG, "my dog"]], **body)


def test_many_numbers_become_text_off_the_event_loop(berts: dict[str, Bert], monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def note(value: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return to_json(value)

    monkeypatch.setattr("bertkit.serve.routes_vectors.to_json", note)
    monkeypatch.setattr("bertkit.serve.service.FLOATS_ON_LOOP", 40)
    with client_of(berts) as client:
        for route, field in (("/embed", "inputs"), ("/v1/embeddings", "input")):
            assert client.post(route, json={field: ["my dog"] * 2}).status_code == 200
    assert [name.startswith("tokenize") for name in threads] == [True, True]


def test_models_by_path_and_by_field(client: TestClient, berts: dict[str, Bert]) -> None:
    for name, bert in berts.items():
        expected = bert.embed("my dog", normalize=True)
        np.testing.assert_allclose(ask(client, f"/models/{name}/embed", inputs="my dog")[0], expected, atol=1e-6)
        answer = client.post("/embed", json={"inputs": "my dog", "model": name})
        np.testing.assert_allclose(answer.json()[0], expected, atol=1e-6)
        assert answer.headers["x-bertkit-model"] == name
    assert "base, reviews" in refused(client, 404, "/models/passwd/embed", inputs="x")
    assert "route" in refused(client, 404, "/models/..%2f..%2fetc/embed", inputs="x")
    assert "base, reviews" in refused(client, 404, "/embed", inputs="x", model="/etc/passwd")
    assert "two models" in refused(client, 422, "/models/base/embed", inputs="x", model="tags")
    assert "tagger" in refused(client, 422, "/entities", inputs="x", model="base")


def test_info_tells_each_model(client: TestClient) -> None:
    told = client.get("/info").json()
    assert told["model_type"] == {"embedding": {"pooling": "mean"}}
    assert {"max_input_length", "max_client_batch_size", "version", "max_batch_tokens"} <= set(told)
    assert {(model["device"], model["engine"]) for model in told["models"]} == {("cpu", "torch")}
    can = {model["name"]: set(model["can"]) for model in told["models"]}
    assert "predict" in can["reviews"]
    assert "fill-mask" not in can["reviews"]
    assert {"fill-mask", "next-sentence", "embed", "tokenize"} <= can["base"]
    one = client.get("/models/reviews/info").json()
    assert one["model_id"] == "reviews"
    assert one["model_type"]["classifier"]["id2label"] == {"0": "bad", "1": "fine", "2": "good"}
    for route in ("info", "health"):
        assert client.get(f"/models/nobody/{route}").status_code == 404


def test_refusals_say_where_and_what(client: TestClient) -> None:
    uses = [{"word": "fair", "text": "a fair judgement"}, {"word": "fair"}]
    assert refused(client, 422, "/words", inputs=uses) == "'inputs.1.text': Field required"
    asked = {"source_sentence": "a", "sentences": []}
    assert "'inputs.sentences'" in refused(client, 422, "/similarity", inputs=asked)
    assert "string or:" in refused(client, 422, "/embed", inputs=3)
    assert "1024 texts" in refused(client, 413, "/embed", inputs=["a"] * 1025)
    assert "256 texts" in refused(client, 413, "/tokenize", inputs=["a"] * 257)
    assert "route" in refused(client, 404, "/models/reviews/embed/", inputs="a")  # not sent on to another model
    wrong = client.get("/embed")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert "takes POST" in wrong.json()["error"]
    assert client.head("/health").status_code == 200


def test_the_examples_of_the_schema_work(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    tried = 0
    for path, methods in schema["paths"].items():
        if "post" not in methods:
            continue
        body = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for example in schema["components"]["schemas"][body]["examples"]:
            answer = client.post(path, json=example)
            assert answer.status_code == 200, f"{path} {answer.text}"
            tried += 1
    assert tried >= 12
    page = client.get("/docs").text
    assert page.count("<form") == sum(len(methods) for methods in schema["paths"].values())
    assert "http:" not in page
    assert "https:" not in page


def test_openais_client_is_at_home(berts: dict[str, Bert]) -> None:
    expected = berts["base"].embed(TEXTS, normalize=True)

    async def use() -> None:
        transport = httpx.ASGITransport(make_app(berts, keys=("any",)))
        made: Any = httpx.AsyncClient(transport=transport)
        async with made as http:
            theirs = openai.AsyncOpenAI(api_key="any", base_url="http://here/v1", http_client=http)
            found = await theirs.embeddings.create(model="base", input=TEXTS)  # base64 inside, lists outside
            np.testing.assert_allclose([one.embedding for one in found.data], expected, atol=1e-6)
            assert [one.index for one in found.data] == [0, 1, 2, 3]
            assert found.usage.total_tokens == sum(len(ids) + 2 for ids in berts["base"].tokenizer.encode_ids(TEXTS))
            plain = await theirs.embeddings.create(model="base", input=TEXTS, encoding_format="float")
            np.testing.assert_allclose([one.embedding for one in plain.data], expected, atol=1e-6)
            coded = await theirs.embeddings.create(model="base", input=TEXTS[0], encoding_format="base64")
            bits = np.frombuffer(base64.b64decode(str(coded.data[0].embedding)), "<f4")
            np.testing.assert_allclose(bits, expected[0], atol=1e-6)
            short = await theirs.embeddings.create(model="base", input="my dog", dimensions=4)
            assert len(short.data[0].embedding) == 4
            assert [model.id async for model in theirs.models.list()] == list(berts)
            with pytest.raises(openai.NotFoundError, match="base, reviews"):
                await theirs.embeddings.create(model="text-embedding-3-small", input="x")
            with pytest.raises(openai.AuthenticationError, match="API key"):
                await theirs.with_options(api_key="other").embeddings.create(model="base", input="x")

    asyncio.run(use())
