"""The `bertkit` command: one verb a file, and bad input told in one line with exit code 2."""

import io
import os
import sys
import warnings
from contextlib import suppress
from typing import Annotated, Any

import typer

import bertkit
from bertkit.cli.answer import answer
from bertkit.cli.bench import bench
from bertkit.cli.convert import convert
from bertkit.cli.demo import demo
from bertkit.cli.doctor import doctor
from bertkit.cli.embed import embed
from bertkit.cli.evaluate import evaluate
from bertkit.cli.explain import explain
from bertkit.cli.export import export
from bertkit.cli.features import features
from bertkit.cli.fill_mask import fill_mask
from bertkit.cli.finetune import finetune
from bertkit.cli.info import info
from bertkit.cli.inspect import inspect
from bertkit.cli.next_sentence import next_sentence
from bertkit.cli.predict import predict
from bertkit.cli.prepare import prepare
from bertkit.cli.pretrain import pretrain
from bertkit.cli.serve import serve
from bertkit.cli.study import study
from bertkit.cli.tag import tag
from bertkit.cli.train_head import train_head
from bertkit.cli.tune_vectors import tune_vectors
from bertkit.cli.vocab import app as vocab
from bertkit.cli.words import words
from bertkit.errors import BertkitError

app = typer.Typer(
    name="bertkit",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

for verb in (
    demo,
    explain,
    fill_mask,
    next_sentence,
    embed,
    features,
    train_head,
    tune_vectors,
    words,
    finetune,
    evaluate,
    predict,
    tag,
    answer,
    inspect,
    info,
    convert,
    export,
    bench,
    prepare,
    doctor,
    pretrain,
    study,
    serve,
):
    app.command(verb.__name__.replace("_", "-"))(verb)
app.add_typer(vocab, name="vocab")


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"bertkit {bertkit.__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Say which bertkit this is.")
    ] = False,
) -> None:
    """BERT, whole: from raw text to a served model."""


def main() -> None:
    """Run the command line; a BertkitError becomes one line and exit code 2."""
    warnings.showwarning = _print_warning
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale says: texts are of any language
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # a full disk must show here, not when the interpreter ends
    except BertkitError as error:
        print(f"bertkit: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        _forget_output()
        if not isinstance(error, BrokenPipeError):  # a reader such as `head` may have seen enough
            print(f"bertkit: cannot write the output: {error.strerror or error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, BrokenPipeError) else 2)


def _forget_output() -> None:
    """What is still buffered cannot be written either; the interpreter must not try again at its end."""
    with suppress(io.UnsupportedOperation):  # standard output that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"bertkit: warning: {' '.join(str(message).split())}", file=sys.stderr)  # one line, whoever warns


if __name__ == "__main__":
    main()
