"""VerifIF's instructions, on texts in many languages."""

from __future__ import annotations

from typing import Any

from gym_resources.instructions.instruction_ids import OF_VERIFIF
from resources.instructions.case import Case

_CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("change_case:all_caps", {}, "STRASSE 7!", "Strasse"),
    ("change_case:all_caps_target", {"target_string": "nato"}, "NATO und NATO", "NATO und Nato"),
    ("change_case:case_ratio", {"min_fraction": 0.4, "max_fraction": 0.6}, "ÄbÖd", "abcD"),
    ("change_case:first_letter_cap", {}, "Élan Vital 7", "Élan vital"),
    ("change_case:first_letter_sentence", {}, "Oui. « Bon ! » Ah", "Oui. non."),
    ("change_case:lowercase", {}, "tout doux", "Tout doux"),
    ("change_case:lowercase_target", {"target_string": "Web"}, "das web", "das Web"),
    (
        "detectable_content:number_placeholders",
        {"relation": "exactly", "num_placeholders": 2},
        "[a] et [b]",
        "[a], [b], [c]",
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "So. P.S. Da.", "So."),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a}"),
    (
        "detectable_format:multiple_sections",
        {"section_splitter": "Teil", "relation": "at least", "num_sections": 2},
        "## Teil 1\na\n**Teil 2**\nb",
        "Teil 1\nDer Teil 2",
    ),
    (
        "detectable_format:number_bullet_lists",
        {"relation": "at most", "num_bullets": 2},
        "- a\n• b",
        "- a\n* b\n+ c",
    ),
    (
        "detectable_format:number_paragraphs",
        {"relation": "equal to", "num_paragraphs": 2},
        "a\n\n \nb",
        "a\nb",
    ),
    (
        "detectable_format:numbered_list",
        {"relation": "more than", "num_numbered_items": 1},
        "1. a\n2) b",
        "1. a",
    ),
    (
        "detectable_format:sentences_per_paragraph",
        {"relation": "at most", "num_sentences": 1},
        "第一。\n\n第二！",
        "a. b.\n\nc.",
    ),
    ("detectable_format:title", {}, "<<Mer>>\nBleue", "Mer"),
    ("keywords:existence", {"keywords": ["mer", "Ciel"]}, "La mer, le ciel", "La mer"),
    ("keywords:forbidden_words", {"forbidden_words": ["solo (a)", "nur"]}, "Nurse, solos", "nicht NUR das"),
    (
        "keywords:frequency",
        {"keyword": "a b", "relation": "less than", "frequency": 2},
        "A b. ab b",
        "a b, A B",
    ),
    (
        "keywords:letter_frequency",
        {"letter": "é", "let_relation": "greater than", "let_frequency": 1},
        "Été",
        "été"[:2],
    ),
    ("length:max_word_count", {"max_words": 3}, "eins zwei drei", "eins zwei drei vier"),
    ("length_constraints:number_characters", {"relation": "at least", "num_chars": 4}, "mère", "mer"),
    (
        "length_constraints:number_words",
        {"relation": "less than", "num_words": 3},
        "eins zwei",
        "eins zwei drei",
    ),
    ("length_constraints:unique_words", {"relation": "at least", "num_unique": 2}, "eins zwei", "eins Eins"),
    ("length_constraints:word_repetition", {"max_repeats": 1}, "eins zwei", "eins Eins"),
    ("punctuation:balance", {}, "([a] {b})", "(]"),
    ("punctuation:frequency", {"punctuation": ";", "relation": "equal", "frequency": 2}, "a; b; c", "a; b"),
    ("punctuation:no_comma", {}, "a. b", "a、b"),
    ("punctuation:no_period", {}, "a, b!", "a。"),
    ("startend:end_checker", {"end_phrase": "Bis bald"}, "Also: bis bald!“", "Bis bald, Maria"),
    ("startend:quotation", {}, "« Oui »", "« Oui"),
    (
        "startend:start_checker",
        {"start_phrase": "Début du texte"},
        "**« Début du texte »** : oui",
        "Le début du texte",
    ),
    ("startend:wrap_checker", {"wrap_phrase": "stop"}, "Stop. Go. Stop.", "stop"),
]
VERIFIF_CASES: dict[str, list[Case]] = {
    OF_VERIFIF + name: [(arguments, [right], [wrong])] for name, arguments, right, wrong in _CASES
}
