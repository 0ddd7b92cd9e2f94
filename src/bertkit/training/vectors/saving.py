"""A tuned encoder as a folder: an ordinary checkpoint, with the files by which sentence-transformers knows its pooling."""

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bertkit.errors import BertkitError
from bertkit.model.bert import BertModel
from bertkit.model.formats import save_model
from bertkit.model.formats.sentence_transformers import SentenceStyle, write_style
from bertkit.pages.finetuning import FinetuningReport, finetuning_page
from bertkit.pages.frame import save as save_page
from bertkit.tokenizer import Tokenizer

CHECKPOINTS = "checkpoints"  # in the folder of a run that is not over

CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- bert
---

# Sentence vectors

{dimensions}-dimensional vectors of sentences whose cosine tells how alike they are. Tuned from `{base}` with bertkit
({loss} loss, {pooling} of the real tokens{scaled}).

| | {metric} on dev |
|---|---|
| before | {before:.4f} |
| after | {after:.4f} |

    import bertkit
    bertkit.load("FOLDER").embed(["A plane is taking off.", "An air plane is taking off."])

    from sentence_transformers import SentenceTransformer
    SentenceTransformer("FOLDER").encode(["A plane is taking off.", "An air plane is taking off."])
"""


@dataclass(frozen=True)
class TunedVectors:
    """A tuned encoder, how its vectors are made, and how it went."""

    model: BertModel
    tokenizer: Tokenizer
    style: SentenceStyle
    base: str
    loss: str
    history: list[dict[str, float]]  # a row an epoch; the first is before any training
    report: FinetuningReport

    @property
    def metric(self) -> str:
        """What was measured on dev: spearman, or retrieval where there are no scores."""
        return "spearman" if "spearman" in self.history[0] else "retrieval"

    @property
    def before(self) -> float:
        """The score on dev before training."""
        return self.history[0][self.metric]

    @property
    def score(self) -> float:
        """The best epoch's score on dev: that of the weights kept."""
        return max(row[self.metric] for row in self.history[1:])

    def save(self, folder: str | Path) -> Path:
        """Write the folder with its card and report; bertkit, transformers and sentence-transformers load it as it is."""
        target = Path(folder)
        save_model(self.model, target)
        self.tokenizer.save(target, max_length=self.model.config.max_positions)
        write_style(target, self.style, self.model.config)
        try:
            (target / "README.md").write_text(self.card(), encoding="utf-8")
            (target / "tuning.json").write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")
            save_page(target / "report.html", finetuning_page(replace(self.report, name=target.name)))
            shutil.rmtree(target / CHECKPOINTS, ignore_errors=True)  # the run is over
        except OSError as error:
            raise BertkitError(f"{target} cannot be written: {error.strerror or error}") from None
        return target

    def card(self) -> str:
        """The model card."""
        return CARD.format(
            dimensions=self.model.config.hidden_size,
            base=Path(self.base).name if Path(self.base).exists() else self.base,
            loss=self.loss,
            pooling=self.style.pooling,
            scaled=", scaled to length 1" if self.style.normalize else "",
            metric=self.metric,
            before=self.before,
            after=self.score,
        )

    def to_json(self) -> dict[str, Any]:
        """The run in figures."""
        return {
            "base": self.base,
            "loss": self.loss,
            "style": asdict(self.style),
            "metric": self.metric,
            "before": self.before,
            "score": self.score,
            "history": self.history,
        }
