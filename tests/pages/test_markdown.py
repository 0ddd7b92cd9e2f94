"""Tables of reports and cards."""

from bertkit.pages.markdown import markdown_table


def test_numbers_stand_right_and_no_cell_breaks_the_table() -> None:
    text = markdown_table(["arm", "#score"], [["a | b", "1.5"], ["two\nlines", "2"]])
    assert text.splitlines() == ["| arm | score |", "| --- | ---: |", "| a \\| b | 1.5 |", "| two lines | 2 |"]
