r"""Rules of the environments whose answer is an option: mcqa and gpqa_diamond."""

from __future__ import annotations

from typing import Any

from resources.fidelity.rules import REFUSED, Item, Rule, Worth, made, printed, refusal, said

METALS: dict[str, Any] = {
    "options": [{"A": "Zinc"}, {"B": "Liquid mercury"}, {"C": "Lead"}, {"D": "Lead ore"}]
}
IS_B = {**METALS, "expected_answer": "B"}


def mcqa(
    says: str,
    *cases: tuple[Item | list[Item], Worth],
    mode: str = "strict_single_letter_boxed",
    **fields: Any,
) -> Rule:
    task = {**IS_B, "grading_mode": mode, **fields}
    return Rule(environment="mcqa", says=says, task=task, cases=cases)


def gpqa(says: str, *cases: tuple[Item | list[Item], Worth], **fields: Any) -> Rule:
    return Rule(environment="gpqa_diamond", says=says, task={**IS_B, **fields}, cases=cases)


def letter(answer: str | None) -> dict[str, Any]:
    return {"extracted_answer": answer}


MCQA = [
    mcqa(
        "all output texts of all messages are put together without a separator",
        ([r"\boxed{B}", made("look", {}), printed(r"\boxed{A}"), "So much for that."], 1.0),
        ([said(r"I say \bo", "xed{", "B}")], 1.0),
        ([r"The answer: \boxed{", "B}"], 1.0),
        ([refusal(r"\boxed{B}")], 0.0),
    ),
    mcqa("an empty text is worth 0", ([], 0.0), ("", 0.0), (" \n\t", 0.0), expected_answer=""),
    mcqa(
        "a box is opened by \\boxed{ without a space",
        (r"\boxed {B}", 0.0),
        (r"\boxed{B} and \boxed {A}", 1.0),
        (r"\fbox{B}", 0.0),
    ),
    mcqa(
        "the last opening counts, and if its braces never balance there is no box at all",
        (r"\boxed{A}, no: \boxed{B}", 1.0),
        (r"\boxed{B} \boxed{", 0.0),
        (r"\boxed{B} \boxed{\frac{1}{2", 0.0),
    ),
    mcqa(
        "escaped braces count as braces",
        (r"\boxed{\{B\}}", 1.0),
        (r"\boxed{B\}", 1.0),
        (r"\boxed{\{B}", 0.0),
    ),
    mcqa(
        "options and the expected answer may be missing; without an expected answer everything is worth 0",
        (r"\boxed{B}", 0.0),
        expected_answer=None,
    ),
    mcqa("without options no letter of a box is an option", (r"\boxed{B}", 0.0), options=None),
    mcqa(
        "options are single alphabetic keys with a wording, in upper case",
        (r"\boxed{B}", letter("B")),
        (r"\boxed{A}", letter(None)),
        (r"\boxed{C}", letter(None)),
        options=[{"b": "small"}, {"A": None}, {"CC": "long"}, {"1": "one"}],
    ),
    mcqa(
        "in a strict box \\text{…} is unwrapped as often as it surrounds all of the content",
        (r"\boxed{\text{\text{ \text{B} }}}", 1.0),
        (r"\boxed{\text{B}.}", 0.0),
    ),
    mcqa(
        "in a strict box the only Latin letter counts, and it must be a capital",
        (r"\boxed{(B)}", 1.0),
        (r"\boxed{ 2. [B]! }", 1.0),
        (r"\boxed{b}", 0.0),
        (r"\boxed{BB}", 0.0),
        (r"\boxed{B or A}", 0.0),
    ),
    mcqa(
        "in a strict box a capital at the start counts if one of : ) . - follows",
        *((rf"\boxed{{B{mark} mercury}}", 1.0) for mark in ":).-"),
        (r"\boxed{B, mercury}", 0.0),
        (r"\boxed{mercury: B}", 0.0),
    ),
    mcqa("in a strict box the letter must be an option's", (r"\boxed{E}", letter(None)), expected_answer="E"),
    mcqa(
        "a lenient box may hold the wording of the only option that is contained in it",
        (r"\boxed{the LIQUID   mercury, of course}", 1.0),
        (r"\boxed{\text{liquid mercury}}", 1.0),
        (r"\boxed{mercury}", 0.0),
        (r"\boxed{liquid mercury or zinc}", 0.0),
        (r"\boxed{lead ore}", 0.0),  # it contains "lead" as well
        (r"\boxed{B}", 1.0),
        mode="lenient_boxed",
    ),
    mcqa(
        "a lenient box is tried with and without its \\text{}",
        (r"\boxed{\text{so be it}}", 1.0),
        mode="lenient_boxed",
        options=[{"A": "no"}, {"B": r"\text{so"}],
    ),
    mcqa(
        "answer_colon reads behind the first answer: in any case, to the end of the line",
        ("My ANSWER: b", 1.0),
        ("answer: A\nanswer: B", 0.0),
        ("answer: B\nand more", 1.0),
        (r"Answer: \text{B} ", 1.0),
        ("Answer: liquid MERCURY", 1.0),
        ("Answer: the liquid mercury", 0.0),
        ("Answer: B.", 0.0),
        mode="lenient_answer_colon",
    ),
    mcqa(
        "answer_colon takes the first of two options with the same wording",
        ("Answer: same", letter("A")),
        mode="lenient_answer_colon",
        options=[{"A": "same"}, {"B": "Same"}],
    ),
    mcqa(
        "answer_colon_md goes from the last Answer: to the first, to the first payload with a letter",
        ("Answer: B\nAnswer: it depends", 1.0),
        ("Answer: B\n**Answer:** A", 0.0),
        ("__Answer__: B", 1.0),
        ("**Answer**:** B", 1.0),
        ("Answer： B", 0.0),  # not an ASCII colon
        mode="lenient_answer_colon_md",
    ),
    mcqa(
        "answer_colon_md maps exactly four letters of three other scripts",
        ("Answer: ب", 1.0),
        ("Answer: ব", 1.0),
        ("Answer: Ｂ", 1.0),
        ("Answer: Ｅ", letter(None)),
        ("Answer: β", letter(None)),
        mode="lenient_answer_colon_md",
        options=[*METALS["options"], {"E": "Tin"}],
    ),
    mcqa(
        "answer_colon_md strips spaces, stars, underscores, backticks and . , ; :",
        ("Answer: `*_B_*`.,;:", 1.0),
        ("Answer: (B)", 1.0),  # no letter at the start, but a capital alone
        mode="lenient_answer_colon_md",
    ),
    mcqa(
        "answer_colon_md finds nothing where two different options stand beside each other",
        *(
            (f"Answer: B{between}A", letter(None))
            for between in (" ", "/", " | ", " & ", ", ", "; ", " or ", " AND ")
        ),
        ("Answer: B or B", 1.0),
        ("Answer: A, rather than anything, B", 0.0),
        mode="lenient_answer_colon_md",
    ),
    mcqa(
        "answer_colon_md takes a letter at the start, else the last capital that stands alone; no wording",
        ("Answer: b because A is wrong", 1.0),
        ("Answer: B2", letter(None)),
        ("Answer: the correct option is B", 1.0),
        ("Answer: not C, it must be B", 1.0),
        ("Answer: Liquid mercury", letter(None)),
        mode="lenient_answer_colon_md",
    ),
    mcqa(
        "an output_regex is searched for in any case, and its last match counts, by its group",
        ("i CHOOSE a, then I choose b!", 1.0),
        (r"\boxed{B}", 1.0),  # no match: the mode decides
        template_metadata={"output_regex": r"I choose (\w)"},
    ),
    mcqa(
        "what an output_regex captures may be one letter, even if it is no option: the mode is not tried",
        (r"pick:Z \boxed{B}", letter("Z")),
        (r"pick:ｂ \boxed{A}", letter("Ｂ")),
        (r"pick:Ｂ \boxed{A}", 1.0),
        (r"pick:7 \boxed{B}", 1.0),
        template_metadata={"output_regex": "pick:(.)"},
    ),
    mcqa(
        "what an output_regex captures may be a whole wording",
        ("It is <liquid  mercury>", 1.0),
        (r"It is <mercury> \boxed{A}", letter("A")),
        template_metadata={"output_regex": "<(.+)>"},
    ),
]
GPQA = [
    gpqa(
        "all output texts of all messages are put together without a separator",
        (["Answer: ", "B"], 1.0),
        ([r"\boxed{B}", made("f", {}), printed(""), "Thanks."], 1.0),
    ),
    gpqa(
        "options are optional; with them a letter outside counts as none, and nothing further is searched",
        (r"\boxed{F} Answer: B", letter(None)),
        ("Answer: F", letter(None)),
    ),
    gpqa("without options any letter counts", (r"\boxed{F}", 1.0), options=None, expected_answer="F"),
    gpqa(
        "a box reaches to its first }: one capital, else the last capital that stands alone in it",
        (r"\boxed{B}", 1.0),
        (r"\boxed{A, no, B}", 1.0),
        (r"\boxed{\text{B} or A}", 1.0),
        (r"\boxed {A} Answer: B", 1.0),
        (r"\boxed{AB} Answer: B", 1.0),
    ),
    gpqa("if the last box has none, the answer line counts", (r"\boxed{A} \boxed{42} Answer: B", 1.0)),
    gpqa(
        "its expression comes first, and is one and not a list",
        (r"<B> \boxed{A}", 1.0),
        template_metadata={"output_regex": "<(.)>"},
    ),
    gpqa("a list of expressions is refused", ("B", REFUSED), template_metadata={"output_regex": ["(.)"]}),
]
RULES = [*MCQA, *GPQA]
