"""For each instruction of IFEval: arguments, texts that follow it, and texts that do not."""

from __future__ import annotations

from resources.instructions.case import LEAST, LESS, PROMPT, Case

IFEVAL_CASES: dict[str, list[Case]] = {
    "keywords:existence": [
        ({"keywords": ["cat", "c\\+\\+"]}, ["Cats like C++."], ["Cats like C.", "c++", ""]),
    ],
    "keywords:frequency": [
        ({"keyword": "cat", "frequency": 2, "relation": LEAST}, ["Cat concat"], ["cat", "c a t"]),
        ({"keyword": "cat", "frequency": 2, "relation": LESS}, ["cat", "dog"], ["Cat concat"]),
    ],
    "keywords:forbidden_words": [({"forbidden_words": ["part"]}, ["a party"], ["A part.", "PART"])],
    "keywords:letter_frequency": [
        ({"letter": "e", "let_frequency": 2, "let_relation": LEAST}, ["Eve"], ["e"]),
        ({"letter": "#", "let_frequency": 1, "let_relation": LESS}, ["e"], ["#"]),
    ],
    "language:response_language": [
        (
            {"language": "de"},
            ["Das ist ein kurzer Satz auf Deutsch, und noch einer.", "123"],
            ["This is a short sentence in English, and one more of them."],
        ),
    ],
    "length_constraints:number_sentences": [
        ({"num_sentences": 2, "relation": LEAST}, ["One. Two.", "One? Two"], ["One.", "Mr. Low"]),
        ({"num_sentences": 2, "relation": LESS}, ["One."], ["One. Two."]),
    ],
    "length_constraints:number_paragraphs": [
        (
            {"num_paragraphs": 2},
            ["a\n***\nb", "***\na *** b", "a***b***"],
            ["a", "a\n\nb", "a *** *** b", "a***b***c"],
        ),
    ],
    "length_constraints:number_words": [
        ({"num_words": 3, "relation": LEAST}, ["one two three", "don't go"], ["one two"]),
        ({"num_words": 3, "relation": LESS}, ["one two"], ["one two three"]),
    ],
    "length_constraints:nth_paragraph_first_word": [
        (
            {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Crash"},
            ["a\n\ncrash it", 'a\n\n"Crash", he said', "a\n\nCRASH!"],
            ["a\n\nthe crash", "crash", "a\n\nb\n\ncrash", "a\n\n\n\ncrash", "a\n\ncrashed"],
        ),
    ],
    "detectable_content:number_placeholders": [
        ({"num_placeholders": 2}, ["[name] lives in [town]", "[][]"], ["[name]", "[a\n] [b"]),
    ],
    "detectable_content:postscript": [
        ({"postscript_marker": "P.S."}, ["Bye.\nP.S. One more", "p. s. x"], ["PS: x", "P.P.S"]),
        ({"postscript_marker": "P.P.S"}, ["P.P.S. x", "p. p. s"], ["P.S. x"]),
        ({"postscript_marker": "(NB)"}, ["x (nb) y"], ["nb"]),
    ],
    "detectable_format:number_bullet_lists": [
        ({"num_bullets": 2}, ["* a\n* b", "  - a\n\n-b", "* a\n- b\n**bold**"], ["* a", "* a\n* b\n* c"]),
    ],
    "detectable_format:constrained_response": [({}, ["My answer is maybe."], ["Maybe.", "my answer is no."])],
    "detectable_format:number_highlighted_sections": [
        ({"num_highlights": 2}, ["*a* and *b*", "**a** and *b*"], ["*a*", "* * * *", "*a\n* *"]),
    ],
    "detectable_format:multiple_sections": [
        (
            {"section_spliter": "Section", "num_sections": 2},
            ["Section 1\na\nSection 2\nb", "Section1 Section2 Section3"],
            ["Section 1", "SECTION 1 SECTION 2", "Section A Section B"],
        ),
    ],
    "detectable_format:json_format": [
        (
            {},
            ['{"a": [1]}', '```json\n{"a": 1}\n```', "```\n1\n```"],
            ["{", "Here: {}", "", "[" * 10_000],
        ),
    ],
    "detectable_format:title": [({}, ["<<A poem>>\nx", "x <<<a>>>"], ["<<>>", "<< >>", "<a>", "<<a\n>>"])],
    "combination:two_responses": [
        ({}, ["a\n******\nb", "******a******b"], ["a", "a******a", "a******b******c", "a************b"]),
    ],
    "combination:repeat_prompt": [
        ({"prompt_to_repeat": PROMPT}, [PROMPT.upper() + " Ob"], ["Ob. " + PROMPT])
    ],
    "startend:end_checker": [
        ({"end_phrase": "That is all."}, ["So. that is ALL.", '"That is all."'], ["That is all. Bye"]),
    ],
    "startend:quotation": [({}, ['"a"', ' "a" b" '], ['"', 'a"', "“a”"])],
    "change_case:capital_word_frequency": [
        ({"capital_frequency": 2, "capital_relation": LEAST}, ["The USA and NATO", "I AM"], ["I am"]),
        ({"capital_frequency": 2, "capital_relation": LESS}, ["I am"], ["I AM"]),
    ],
    "change_case:english_capital": [
        (
            {},
            ["THIS IS THE WAY WE WRITE."],
            ["This is the way we write.", "DAS IST EIN SATZ AUF DEUTSCH UND NOCH EINER."],
        ),
    ],
    "change_case:english_lowercase": [
        (
            {},
            ["this is the way we write."],
            ["This is the way we write.", "das ist ein satz auf deutsch und noch einer."],
        ),
    ],
    "punctuation:no_comma": [({}, ["a b"], ["a, b"])],
}
