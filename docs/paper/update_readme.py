"""Fill the README's section on the paper from the numbers beside this file.

Run it after ``adlmh reproduce all --out docs/paper``; with ``--check`` it changes nothing and fails
if the README is out of date.
"""

import sys
from pathlib import Path

from adlmh_jax.paper.experiments import load_numbers, readme_section

HERE = Path(__file__).resolve().parent
README = HERE.parents[1] / "README.md"
BEGIN, END = "<!-- paper: begin -->", "<!-- paper: end -->"


def filled(text: str, section: str) -> str:
    """Return the text with the section between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"The README needs the marks {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def main() -> int:
    """Update the README, or check it."""
    cases = load_numbers(HERE)
    if not cases:
        print("There are no numbers: run `adlmh reproduce all --out docs/paper` first.")
        return 1
    old = README.read_text(encoding="utf-8")
    new = filled(old, readme_section(cases, "docs/paper"))
    if "--check" in sys.argv[1:]:
        return int(new != old)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
