"""The `bertkit` command: one verb a file, and bad input told in one line with exit code 2."""

import io
import os
import re
import sys
import warnings
from contextlib import suppress
from typing import Annotated, Any, NoReturn

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
from bertkit.cli.places import with_paths
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
from bertkit.cores import settle_threads
from bertkit.errors import BertkitError

MOST_SHOWN = 2000  # characters of a line on standard error
NO_MEMORY = re.compile(r"MemoryError|OutOfMemory|out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
# All that typer refuses by itself; where its class lies differs between the versions of typer.
UNPARSED: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

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
    app.command(verb.__name__.replace("_", "-"))(with_paths(verb))
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
    settle_threads(os.environ)
    warnings.showwarning = _print_warning
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as some schedulers do
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale says: texts are of any language
    try:
        try:
            code = app(standalone_mode=False, prog_name="bertkit")
        finally:
            sys.stdout.flush()  # a full disk must show here, not when the interpreter ends
    except BertkitError as error:
        _refuse(str(error))
    except UNPARSED as error:
        _refuse_usage(error)
    except typer.Abort:  # a question answered with no
        _say("stopped")
        code = 1
    except BrokenPipeError:  # a reader such as `head` may have seen enough
        _forget_output()
        code = 1
    except OSError as error:
        _forget_output()
        _refuse(f"cannot read or write {error.filename or 'the output'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if not NO_MEMORY.search(f"{type(error).__name__}: {error}"):
            raise
        _refuse("there is not enough memory for this; choose smaller sizes or batches")
    sys.exit(code)


def _refuse(message: str) -> NoReturn:
    _say(message)
    sys.exit(2)


def _refuse_usage(error: Any) -> NoReturn:
    """What cannot be parsed, in one line; a command that is nothing without arguments shows its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.message, nl=bool(error.message))  # empty where typer has printed it in colours already
        sys.exit(2)
    path = error.ctx.command_path if getattr(error, "ctx", None) else "bertkit"
    _refuse(f"{error.format_message().rstrip('.')} (see `{path} --help`)")


def _say(message: str) -> None:
    """One line on standard error, however a text or a name in it is broken and however long it is."""
    line = " ".join(message.split())
    shown = line if len(line) <= MOST_SHOWN else f"{line[: MOST_SHOWN // 2]} ... {line[-MOST_SHOWN // 2 :]}"
    print(f"bertkit: {shown}", file=sys.stderr)


def _forget_output() -> None:
    """What is still buffered cannot be written either; the interpreter must not try again at its end."""
    with suppress(io.UnsupportedOperation):  # standard output that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(f"warning: {message}")


if __name__ == "__main__":
    main()
