"""Numbers in messages for people: 1 file is, 2 files are."""


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun, which may bring its verb: counted(1, "text was", "texts were")."""
    return f"{count:,} {agree(count, one, many or one + 's')}"


def agree(count: int, one: str, many: str) -> str:
    """The word that goes with a number: agree(2, "is", "are")."""
    return one if count == 1 else many


def in_millions(count: float) -> str:
    """A large number by its millions, and one below a million in full."""
    return f"{count / 1e6:,.1f} million" if count >= 1e6 else f"{count:,.0f}"
