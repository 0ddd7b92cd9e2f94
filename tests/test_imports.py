"""The direction of imports: arrows point one way, and text, tokenizer and --help never load torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "bertkit"

# room: the rooms it may import from (itself, errors.py and cores.py always)
ALLOWED: dict[str, set[str]] = {
    "text": set(),
    "pages": set(),
    "bundled": set(),
    "model": {"bundled"},
    "tokenizer": {"text", "bundled"},
    "corpus": {"text", "tokenizer"},
    "tasks": {"text", "tokenizer", "corpus", "model"},
    "training": {"text", "tokenizer", "corpus", "model", "tasks", "pages", "bundled"},
    "export": {"text", "tokenizer", "model"},
    "inference": {"text", "tokenizer", "corpus", "model", "tasks", "pages", "export"},
    "demo": {"text", "tokenizer", "corpus", "model", "tasks", "pages", "training", "inference"},
    "studies": {"text", "tokenizer", "corpus", "model", "tasks", "pages", "training", "inference"},
    "serve": {"text", "tokenizer", "corpus", "model", "tasks", "pages", "inference", "export"},
    "cli": {
        "serve",
        "studies",
        "export",
        "text",
        "tokenizer",
        "corpus",
        "model",
        "tasks",
        "pages",
        "training",
        "inference",
        "demo",
        "bundled",
    },
}


def imported_rooms(file: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        rooms |= {name.split(".")[1] for name in names if name.startswith("bertkit.")}
    return rooms


def test_every_room_is_known() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms == set(ALLOWED)


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_point_one_way(room: str) -> None:
    path = PACKAGE / room
    for file in [path] if path.is_file() else path.rglob("*.py"):
        forbidden = imported_rooms(file) - ALLOWED[room] - {room, "errors", "cores"}
        assert not forbidden, f"{file.relative_to(PACKAGE)} imports {forbidden}"


@pytest.mark.parametrize(
    "code",
    [
        "import bertkit",
        "import bertkit.text.lines, bertkit.text.samples",
        "import bertkit.tokenizer",
        "import bertkit.tasks.reading.texts, bertkit.tasks.reading.conll, bertkit.tasks.reading.squad",
        "import bertkit.tasks.reading.splits, bertkit.tasks.reading.writing, bertkit.tasks.metrics, bertkit.tasks.baseline",
        "import sys; sys.argv = ['bertkit', '--help']; from bertkit.cli.main import app; app(standalone_mode=False)",
    ],
)
def test_torch_stays_unloaded(code: str) -> None:
    script = f"{code}\nimport sys\nassert 'torch' not in sys.modules\nassert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


def test_a_plain_run_starts_without_the_compiler_and_without_what_shards_weights() -> None:
    script = """
import sys
from bertkit.training.determinism import deterministic_algorithms
import bertkit.training.run
with deterministic_algorithms(False):
    pass
assert not {"torch._dynamo", "torch._inductor", "torch.distributed.tensor"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
