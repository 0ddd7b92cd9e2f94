"""The page's files: what is served, by which names, with which headers, and that nothing comes from elsewhere."""

import re
from importlib import resources

import pytest

from tests.browser import need

need("starlette", "httpx")

from starlette.applications import Starlette  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402

from bertkit.serve.page import page_routes  # noqa: E402

FOLDERS = [resources.files("bertkit.serve.page"), resources.files("bertkit.pages").joinpath("parts")]
TEXTS = {
    file.name: file.read_text(encoding="utf-8")
    for folder in FOLDERS
    for file in folder.iterdir()
    if re.search(r"\.(html|css|js)$", file.name)
}
FILES = sorted(TEXTS)


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=page_routes()))


def test_no_two_files_have_one_name() -> None:
    names = [file.name for folder in FOLDERS for file in folder.iterdir()]
    assert len(names) == len(set(names))


def test_every_import_and_link_leads_to_a_file() -> None:
    named = {name for text in TEXTS.values() for name in re.findall(r"\"(?:\./|page/)([\w.]+)\"", text)}
    assert {"drawing.js", "heads.js", "uses.js", "theme.css", "main.js"} <= named <= set(FILES)


def test_every_file_is_served_and_allows_its_own_host_alone(client: TestClient) -> None:
    assert len(FILES) >= 5
    for name in FILES:
        answer = client.get("/" if name == "index.html" else f"/page/{name}")
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        again = client.get(answer.url.path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "name", ["__init__.py", "../shapes.py", "..%2fshapes.py", "", "%2e%2e/%2e%2e/__init__.py", "main.js%00"]
)
def test_no_other_file_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"/page/{name}").status_code == 404


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_another_host(name: str) -> None:
    text = TEXTS[name]
    assert not re.search(r"https?:|//\w+\.\w+", text)
    if name.endswith(".html"):  # the policy forbids them, so they would fail in silence
        assert not re.search(r"<script(?! type=\"module\" src)|<style|\sstyle=|\son\w+=", text)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_scripts_never_make_markup_of_text(name: str) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", TEXTS[name])
