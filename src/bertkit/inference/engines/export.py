"""`bertkit export`: a checkpoint becomes ONNX files in its folder, tried and measured before anybody relies on them.

Out: onnx/model.onnx, and with int8 onnx/model_int8.onnx with the channels' sizes that the engine reads; a report of
how far they are from PyTorch's numbers, and, given a file of the model's task, the scores of both.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.errors import BertkitError
from bertkit.export.building import build_model
from bertkit.export.channels import save_channels
from bertkit.export.checking import largest_difference
from bertkit.export.linear import Array, signed_sums_are_exact
from bertkit.export.outputs import Output, check_output, default_output
from bertkit.inference.bert import Bert
from bertkit.inference.engines.choose import (
    CHANNELS_FILE,
    FLOAT_FILE,
    FOLDER,
    NARROW_FILE,
    sample_channels,
    session_encoder,
)
from bertkit.inference.engines.session import SessionEncoder, open_session
from bertkit.text.files import written_aside
from bertkit.text.folders import make_folder
from bertkit.text.samples import sample_documents

ALLOWED_DIFFERENCE = 1e-3  # of float32 graphs; rounding alone is far below
CHECKED_SENTENCES = 256


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how good it is."""

    output: str
    files: dict[str, int]  # path: bytes
    difference: float  # the largest of float32 ONNX to PyTorch
    cosines: dict[str, float] = field(default_factory=dict)  # of int8 sentence vectors to float32's: lowest, mean
    vnni: bool | None = None  # whether the eight-bit file is for CPUs with VNNI or AMX alone
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # by precision, on the file given

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"{path}: {size / 1e6:,.1f} MB, output {self.output}" for path, size in self.files.items()]
        lines.append(f"float32: largest difference to PyTorch {self.difference:.1e}")
        if self.cosines:
            lines.append(
                f"int8: cosines to float32 {self.cosines['lowest']:.4f} or more, {self.cosines['mean']:.4f} mean"
            )
            lines.append(
                "int8: the file is for CPUs with VNNI or AMX, and wrong on other x86 CPUs: --no-vnni is right on any"
                if self.vnni
                else "int8: the file is right on any CPU; with --vnni it is several times as fast where VNNI or AMX is"
            )
        for name, value in self.scores.get("float32", {}).items():
            lines.append(f"{name}: float32 {value:.4f}, int8 {self.scores['int8'][name]:.4f}")
        return lines


def export_onnx(
    bert: Bert,
    folder: Path,
    *,
    output: str | None = None,
    int8: bool = False,
    vnni: bool | None = None,
    evaluate: str | Path | None = None,
    columns: dict[str, Any] | None = None,
) -> ExportReport:
    """Write the ONNX files of a checkpoint into folder/onnx; `evaluate` is a file to score float32 and int8 on.

    `vnni` says for which CPUs the eight-bit file is: those with VNNI or AMX, or any; by default for those like this one.
    bertkit's own engine does not read it, and is right wherever it runs.
    """
    wide = bert.model.encoder.embeddings.token.weight.dtype == torch.float32
    if isinstance(bert.model.encoder, SessionEncoder) or bert.device.type != "cpu" or not wide:
        raise BertkitError("export reads a checkpoint loaded with device='cpu', engine='torch' and dtype='float32'")
    if evaluate is not None and not int8:
        raise BertkitError("scores compare float32 with int8; add --int8, or leave out --evaluate")
    if vnni is not None and not int8:
        raise BertkitError("--vnni and --no-vnni are about eight bits; add --int8, or leave them out")
    chosen: Output = output or default_output(bert.config, bert.style)  # type: ignore[assignment]
    check_output(chosen, bert.config)
    place = make_folder(folder / FOLDER)
    names = (FLOAT_FILE, NARROW_FILE) if int8 else (FLOAT_FILE,)
    report: dict[str, Any] = {}
    with ExitStack() as whole:  # files take their names when all are tried: the channels, which `auto` looks for, last
        if int8:
            channels = whole.enter_context(written_aside(place / CHANNELS_FILE))
        asides = [whole.enter_context(written_aside(place / name)) for name in names]
        difference = _write(bert, asides[0], chosen)
        if not difference <= ALLOWED_DIFFERENCE:  # also where it is NaN
            raise BertkitError(f"the exported graph differs from PyTorch by {difference:.1e}; please report this model")
        if int8:
            largest = sample_channels(bert)
            vnni = signed_sums_are_exact() if vnni is None else vnni
            if not math.isfinite(_write(bert, asides[1], chosen, largest, vnni)):
                raise BertkitError("the eight-bit graph gives no finite numbers; export this model without --int8")
            save_channels(channels, largest, bert.model)
            report = {"vnni": vnni, **compare_int8(bert, largest, evaluate, columns or {})}
    if not int8:  # an export takes the place of the one before, or `auto` would go on with its eight bits
        for name in (CHANNELS_FILE, NARROW_FILE):
            (place / name).unlink(missing_ok=True)
    files = {str(place / name): (place / name).stat().st_size for name in names}
    return ExportReport(chosen, files, difference, **report)


def _write(
    bert: Bert, path: Path, output: Output, largest: dict[str, Array] | None = None, signed: bool | None = None
) -> float:
    """One file; its largest difference to PyTorch."""
    made = build_model(bert.model, output, style=bert.style, largest=largest, signed=signed)
    path.write_bytes(made.SerializeToString())
    return largest_difference(open_session(str(path)), bert.model, output, bert.style)


def compare_int8(
    bert: Bert, largest: dict[str, Array], evaluate: str | Path | None, columns: dict[str, Any]
) -> dict[str, Any]:
    """Cosines of the sample sentences' vectors, and the scores on a file."""
    sentences = [sentence for document in sample_documents() for sentence in document]
    texts = sentences[1 :: max(1, len(sentences) // CHECKED_SENTENCES)]  # others than those measured for channels
    found = []
    for precision in (None, largest):
        with running(bert, precision):
            scores = None if evaluate is None else bert.evaluate(evaluate, columns=columns).scores
            found.append((np.asarray(bert.embed(texts, normalize=True), np.float32), scores))
    (wide, wide_scores), (narrow, narrow_scores) = found
    cosines = (wide * narrow).sum(axis=1)
    report: dict[str, Any] = {"cosines": {"lowest": float(cosines.min()), "mean": float(cosines.mean())}}
    if wide_scores is not None:
        report["scores"] = {"float32": wide_scores, "int8": narrow_scores}
    return report


@contextmanager
def running(bert: Bert, largest: dict[str, Array] | None, threads: int | None = None) -> Iterator[None]:
    """While this lasts, the checkpoint runs by ONNX Runtime; eight-bit where the channels' sizes are given."""
    plain = bert.model.encoder
    bert.model.encoder = session_encoder(bert, largest, threads)
    try:
        yield
    finally:
        bert.model.encoder = plain
