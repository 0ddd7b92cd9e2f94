"""What goes wrong because of input, not because of a bug. The message is one line that says what to do about it."""

import warnings


class BertkitError(Exception):
    """Bad input. The command line prints the message after "bertkit: " and exits with 2."""


class LongTextError(BertkitError):
    """A text has more tokens than the model has positions, and the caller asked for no cutting."""


class LongTextWarning(UserWarning):
    """A text was cut or split into windows because it has more tokens than the model has positions."""


# Python shows equal warnings from one place once; these must never fall silent. Filters of the user's come first.
warnings.simplefilter("always", LongTextWarning, append=True)
