"""Text files -> a token store: read, clean, split, encode, leave out duplicates; bounded memory, all cores.

What enters: files of documents, a tokenizer. What leaves: a store (see store.py) with a report.
Three stages: each input file becomes a part (any process can do it); the keys of all paragraphs are compared; each
part becomes a shard. What is finished stays when the process is killed, so a second start goes on from there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from bertkit.cores import num_cores
from bertkit.corpus.dedup import Duplicates, Repeated, find_duplicates
from bertkit.corpus.prepare.blocks import PrepareOptions
from bertkit.corpus.prepare.jobs import Input, Jobs, Progress
from bertkit.corpus.prepare.parts import drop_part, part_path, read_part, read_shard, read_slices
from bertkit.corpus.prepare.plan import PLAN, WORK, Plan, find_earlier, find_inputs, remove_work, sweep
from bertkit.corpus.prepare.pool import Pool
from bertkit.corpus.prepare.report import PrepareReport, RepeatedText, make_report, read_report, write_report
from bertkit.corpus.store import MANIFEST, TokenStore, write_manifest
from bertkit.corpus.store_files import replace_text
from bertkit.errors import BertkitError
from bertkit.text.folders import only_one
from bertkit.tokenizer.wordpiece import Tokenizer

NO_DUPLICATES = Duplicates(0, (), ())
TOKENS_SHOWN = 24  # of a repeated paragraph


def prepare(
    inputs: Iterable[str | Path],
    tokenizer: Tokenizer,
    out: str | Path,
    options: PrepareOptions | None = None,
    progress: Progress | None = None,
    *,
    workers: int | None = None,
) -> PrepareReport:
    """Make a token store, or finish one; `progress` is told numbers of characters as they are done."""
    options, folder = options or PrepareOptions(), Path(out)
    num_workers = num_cores() if workers is None else workers
    if num_workers < 1:
        raise BertkitError(f"workers={num_workers} is too few; give at least 1")
    paths = find_inputs(inputs, folder)
    if not paths:
        raise BertkitError("no input files; name .txt, .jsonl or .parquet files, or folders of them")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_one(folder):
            return _prepare(paths, tokenizer, folder, options, progress or (lambda count: None), num_workers)
    except OSError as error:
        raise BertkitError(
            f"{error.filename or folder}: {error.strerror or error}; start again to go on from what is finished"
        ) from None


def _prepare(
    paths: list[Path],
    tokenizer: Tokenizer,
    folder: Path,
    options: PrepareOptions,
    progress: Progress,
    num_workers: int,
) -> PrepareReport:
    sources = [Input.look_at(path) for path in paths]
    plan = Plan.make(paths, tokenizer, options, num_workers)
    if earlier := find_earlier(folder):
        plan.check_same(earlier, folder)
    if (folder / MANIFEST).exists():
        TokenStore.open(folder)  # which says so when a file of it is gone
        remove_work(folder)
        return read_report(folder)
    sweep(folder)
    work = folder / WORK
    work.mkdir(exist_ok=True)
    plan.write(work / PLAN)
    tokenizer.save(work / "tokenizer")
    with Pool(Jobs(tokenizer, options, folder, work), num_workers) as pool:
        if not (work / "duplicates.json").exists():
            _make_parts(pool, sources, progress)
            _compare_parts(pool.jobs, tokenizer, len(sources))
        duplicates, repeated = _read_comparison(work)
        _make_shards(pool, len(sources), duplicates)
    return _finish(folder, plan, repeated)


def _make_parts(pool: Pool, sources: list[Input], progress: Progress) -> None:
    """Every input file that has no part yet: large ones by all workers together, the others one each."""
    work = pool.jobs.work
    left = [(index, source) for index, source in enumerate(sources) if not part_path(work, index, "json").exists()]
    left.sort(key=lambda job: -job[1].size)  # the longest first, so that all end at about the same time
    total = sum(source.size for _, source in left)
    large = [job for job in left if pool.num_workers > 1 and job[1].size * pool.num_workers * 2 > total]
    for index, source in large:
        pool.jobs.write_part(index, source, pool.encode, progress)
    for _ in pool.run("part", left[len(large) :], progress):
        pass


def _compare_parts(jobs: Jobs, tokenizer: Tokenizer, num_parts: int) -> None:
    found = NO_DUPLICATES
    texts: list[RepeatedText] = []
    if jobs.options.dedup:
        folder = jobs.work / "dedup"
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier start that did not get to the end
        folder.mkdir()
        found = find_duplicates([part_path(jobs.work, index, "keys") for index in range(num_parts)], folder)
        texts = [RepeatedText(entry.count, _text_of(jobs, tokenizer, num_parts, entry)) for entry in found.repeated]
    done = {"duplicates": asdict(found), "repeated": [asdict(text) for text in texts]}
    replace_text(jobs.work / "duplicates.json", json.dumps(done))


def _text_of(jobs: Jobs, tokenizer: Tokenizer, num_parts: int, entry: Repeated) -> str:
    """The beginning of a paragraph, from its tokens."""
    number = entry.index
    for index in range(num_parts):
        num_paragraphs, _ = read_part(jobs.work, index)
        if number < num_paragraphs:
            break
        number -= num_paragraphs
    for piece in read_slices(jobs.work, index, jobs.dtype):
        if (local := number - piece.start) < len(piece.paragraphs):
            first = int(piece.paragraphs[:local].sum())
            start = int(piece.sentences[:first].sum())
            size = int(piece.sentences[first : first + int(piece.paragraphs[local])].sum())
            ids = piece.tokens[start : start + min(size, TOKENS_SHOWN)].tolist()
            return tokenizer.decode(ids, skip_special=False) + (" ..." if size > TOKENS_SHOWN else "")
    raise AssertionError(f"no paragraph {entry.index}")


def _read_comparison(work: Path) -> tuple[Duplicates, list[RepeatedText]]:
    done = json.loads((work / "duplicates.json").read_text(encoding="utf-8"))
    fields = done["duplicates"]
    repeated = tuple(Repeated(**entry) for entry in fields["repeated"])
    duplicates = Duplicates(fields["num_removed"], tuple(fields["files"]), repeated)
    return duplicates, [RepeatedText(**entry) for entry in done["repeated"]]


def _make_shards(pool: Pool, num_parts: int, duplicates: Duplicates) -> None:
    jobs = []
    first_paragraph = 0
    for index in range(num_parts):
        if not (pool.jobs.work / f"shard-{index:05d}.json").exists():
            jobs.append((index, duplicates, first_paragraph))
        first_paragraph += read_part(pool.jobs.work, index)[0]
    for index in pool.run("shard", jobs, lambda count: None):
        drop_part(pool.jobs.work, index)


def _finish(folder: Path, plan: Plan, repeated: list[RepeatedText]) -> PrepareReport:
    work, indices = folder / WORK, range(len(plan.inputs))
    entries, figures = zip(*(read_shard(work, index) for index in indices), strict=True)
    manifest = plan.manifest(entries)
    report = make_report(manifest, figures, [read_part(work, index)[1] for index in indices], repeated)
    write_report(folder, report)
    write_manifest(folder, manifest)
    remove_work(folder)
    return report
