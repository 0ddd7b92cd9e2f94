"""The paper's BiLSTM for tags, trained on the features of words (section 5.3), on the one loop of stepping.py.

In: features of words with BIO tags. Out: a trained head, that of the epoch with the best entity F1 on dev.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.errors import BertkitError
from bertkit.model.feature_heads import BiLstmHead, HeadConfig
from bertkit.tasks.feature_heads import TrainedHead, sentence_logits
from bertkit.tasks.features import FeatureTable
from bertkit.tasks.metrics.entities import EntityMetrics
from bertkit.tasks.tagging.decoding import best_sequence, log_softmax
from bertkit.tasks.tagging.labels import TagScheme, tag_labels
from bertkit.training.heads.classifier import standardise
from bertkit.training.loss_loop import LossLoop
from bertkit.training.optimizers.build import OptimizerConfig, build_optimizers
from bertkit.training.schedule import ScheduleConfig
from bertkit.training.shuffling import ShuffledSteps
from bertkit.training.stepping import LoopOptions, Progress
from bertkit.training.world import World


@dataclass(frozen=True)
class TaggerTraining:
    """The paper names the shape of the BiLSTM alone; the rest is what suits it."""

    epochs: int = 15
    batch_size: int = 32
    learning_rate: float = 1e-3
    hidden_size: int = 768
    num_layers: int = 2
    dropout: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or not 0 < self.learning_rate < math.inf:
            raise BertkitError("training a tagger needs epochs and batch_size of at least 1 and a rate above 0")


@dataclass(frozen=True)
class FeatureBatch:
    """Sentences end to end."""

    vectors: Tensor  # [R, W]
    lengths: Tensor  # [N], kept on the CPU
    targets: Tensor  # [R]

    def to(self, device: torch.device | str) -> "FeatureBatch":
        """The same batch on another device."""
        return FeatureBatch(self.vectors.to(device), self.lengths, self.targets.to(device))


@dataclass(frozen=True)
class WordCounts:
    """What a step holds."""

    num_words: int

    @property
    def denominators(self) -> tuple[int, ...]:
        """Words, over which the loss is the mean."""
        return (max(1, self.num_words),)

    @property
    def num_tokens(self) -> int:
        """Words again: there are no pieces here."""
        return self.num_words


class SentenceFeed:
    """Sentences of a table by the number of the step."""

    def __init__(self, table: FeatureTable, targets: Tensor, order: ShuffledSteps) -> None:
        self.table, self.targets, self.order = table, targets, order
        self.groups = table.groups()

    def micro_batch(self, index: int) -> FeatureBatch:
        """The sentences of this step."""
        chosen = [self.groups[sentence] for sentence in self.order.indices(index)]
        vectors = np.concatenate([self.table.vectors[first:end] for first, end in chosen]).astype(np.float32)
        targets = torch.cat([self.targets[first:end] for first, end in chosen])
        lengths = torch.tensor([end - first for first, end in chosen])
        return FeatureBatch(torch.from_numpy(vectors), lengths, targets)

    def counts(self, index: int) -> WordCounts:
        """Its words."""
        chosen = (self.groups[sentence] for sentence in self.order.indices(index))
        return WordCounts(sum(end - first for first, end in chosen))


class TaggerObjective(nn.Module):
    """The head with its loss."""

    def __init__(self, head: BiLstmHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, batch: FeatureBatch, denominators: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss of the step, and its sum."""
        loss = F.cross_entropy(self.head(batch.vectors, batch.lengths), batch.targets, reduction="sum")
        return loss / denominators[0], loss.detach()[None]


OnEpoch = Callable[[int, float, dict[str, float]], None]  # epoch, mean loss, scores on dev


def train_tagger(
    train: FeatureTable,
    dev: FeatureTable | None = None,
    config: TaggerTraining | None = None,
    on_epoch: OnEpoch | None = None,
    device: str = "cpu",
) -> TrainedHead:
    """Train the BiLSTM; with dev, the epoch with the best entity F1 is kept."""
    config = config or TaggerTraining()
    tags = train.known_labels("the training features")
    if train.recipe.per != "word" or not tags:
        raise BertkitError("a tagger needs the features of words; make them with --per word from a file with tags")
    if dev is not None:
        train.recipe.check_same(dev.recipe, "the dev features")
    scheme = TagScheme(tag_labels([tags]))
    torch.manual_seed(config.seed)
    head = BiLstmHead(head_config(train, scheme, config))
    standardise(head, train)
    head.to(device)
    targets = torch.tensor([label for first, end in train.groups() for label in scheme.targets(tags[first:end])])
    feed = SentenceFeed(train, targets, ShuffledSteps(len(train.groups()), config.batch_size, config.seed))
    history: list[dict[str, float]] = []

    def note(epoch: int, loss: float, scores: dict[str, float]) -> None:
        history.append({"step": epoch * feed.order.steps_an_epoch, "loss": loss, **scores})
        if on_epoch:
            on_epoch(epoch, loss, scores)

    scores = run_epochs(head, feed, train, dev, config, note)
    return TrainedHead(head.cpu().eval(), train.recipe, scores, history)


def head_config(train: FeatureTable, scheme: TagScheme, config: TaggerTraining) -> HeadConfig:
    """The BiLSTM over these features."""
    recipe = train.recipe
    return HeadConfig(
        kind="bilstm",
        labels=scheme.labels,
        width=recipe.width,
        num_stacked=recipe.num_stacked,
        weighted=recipe.weighted,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        dropout=config.dropout,
    )


def run_epochs(
    head: BiLstmHead,
    feed: SentenceFeed,
    train: FeatureTable,
    dev: FeatureTable | None,
    config: TaggerTraining,
    on_epoch: OnEpoch,
) -> dict[str, float]:
    """Train; the head is left as it was in its best epoch, whose scores come back."""
    every = feed.order.steps_an_epoch
    best: dict[str, float] = {}
    kept: dict[str, Tensor] = {}
    losses: list[float] = []

    def close_epoch(step: int) -> None:
        scores = {} if dev is None else score_tagger(head, dev, train)
        if not best or scores["f1"] >= best["f1"]:
            best.update(scores)
            kept.update({name: tensor.detach().clone() for name, tensor in head.state_dict().items()})
        on_epoch(step // every, sum(losses[-every:]) / every, scores)
        head.train()

    rates = OptimizerConfig(learning_rate=config.learning_rate, weight_decay=0.0)
    loop: LossLoop[FeatureBatch, WordCounts] = LossLoop(
        objective=TaggerObjective(head),
        feeds=[feed],
        plan=feed.order,
        optimizers=build_optimizers(head, rates),
        schedule=ScheduleConfig(warmup_share=0.05, final=0.05),
        options=LoopOptions(log_every=every, seed=config.seed),
        progress=Progress(config.epochs * every),
        world=World(device=head.intake.mean.device),
    )
    loop.run(
        lambda records: losses.extend(record.loss for record in records),
        is_due=lambda step: step % every == 0,
        on_due=close_epoch,
    )
    head.load_state_dict(kept)
    return best


def score_tagger(head: BiLstmHead, dev: FeatureTable, train: FeatureTable) -> dict[str, float]:
    """Entity-level scores on other features, made alike."""
    train.recipe.check_same(dev.recipe, "the dev features")
    tags, scheme, metrics = dev.known_labels("the dev features"), TagScheme(head.config.labels), EntityMetrics()
    groups = dev.groups()
    found = sentence_logits(head, dev.vectors, [end - first for first, end in groups])
    for (first, end), logits in zip(groups, found, strict=True):
        guessed, _ = scheme.spell(best_sequence(log_softmax(logits), scheme).tolist())
        metrics.add(tags[first:end], guessed)
    return metrics.scores()


def epoch_line(epoch: int, loss: float, scores: dict[str, float]) -> str:
    """For people."""
    return ", ".join([f"epoch {epoch}: loss {loss:.4f}", *(f"{name} {score:.4f}" for name, score in scores.items())])
