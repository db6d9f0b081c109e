"""Every instruction by its id, and how to bind one to the arguments of a row."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, cast, get_type_hints

import msgspec

from gym_resources.instructions import (
    challenges,
    copies,
    counts,
    edges,
    keywords,
    language,
    lengths,
    letter_case,
    sentence_kinds,
    spelling,
    text_forms,
)
from gym_resources.instructions.any_language import VERIFIF
from gym_resources.instructions.words import Expression, is_literal

Checker = Callable[..., bool]

IFEVAL: dict[str, Checker] = {
    "keywords:existence": keywords.existence,
    "keywords:frequency": keywords.frequency,
    "keywords:forbidden_words": keywords.forbidden_words,
    "keywords:letter_frequency": keywords.letter_frequency,
    "language:response_language": language.response_language,
    "length_constraints:number_sentences": lengths.number_sentences,
    "length_constraints:number_paragraphs": lengths.divided_paragraphs,
    "length_constraints:number_words": lengths.number_words,
    "length_constraints:nth_paragraph_first_word": lengths.nth_paragraph_first_word,
    "detectable_content:number_placeholders": text_forms.placeholders,
    "detectable_content:postscript": text_forms.postscript,
    "detectable_format:number_bullet_lists": text_forms.bullets,
    "detectable_format:constrained_response": text_forms.constrained_answer,
    "detectable_format:number_highlighted_sections": text_forms.highlights,
    "detectable_format:multiple_sections": text_forms.sections,
    "detectable_format:json_format": text_forms.json_only,
    "detectable_format:title": text_forms.title,
    "combination:two_responses": copies.two_responses,
    "combination:repeat_prompt": copies.prompt_first,
    "startend:end_checker": edges.end_phrase,
    "startend:quotation": edges.in_quotes,
    "change_case:capital_word_frequency": letter_case.capital_words,
    "change_case:english_capital": language.english_capitals,
    "change_case:english_lowercase": language.english_small,
    "punctuation:no_comma": letter_case.no_comma,
}
IFTRAIN: dict[str, Checker] = {
    "copy:repeat_phrase": copies.varied_phrase,
    "copy:copy": copies.prompt_only,
    "copy:copying_simple": copies.prompt_only,
    "copy:copying_multiple": copies.prompt_times,
    "new:copy_span_idx": copies.characters,
    "detectable_format:sentence_hyphens": text_forms.hyphened_sentences,
    "detectable_format:square_brackets": text_forms.bracketed_words,
    "detectable_format:bigram_wrapping": text_forms.wrapped_bigrams,
    "keywords:no_adjacent_consecutive": spelling.no_consecutive_letters,
    "keywords:word_once": keywords.word_once,
    "keywords:word_count_different_numbers": keywords.frequency_or_exactly,
    "keywords:exclude_word_harder": keywords.no_spaced_word,
    "keywords:palindrome": spelling.palindrome,
    "keywords:keyword_specific_position": keywords.at_position,
    "keywords:start_end": edges.same_first_and_last_word,
    "paragraphs:paragraphs": lengths.two_divided_paragraphs,
    "paragraphs:paragraphs2": lengths.two_paragraphs,
    "first_word:first_word_sent": edges.first_word_of_sentences,
    "first_word:first_word_answer": edges.first_word,
    "last_word:last_word_sent": edges.last_word_of_sentences,
    "last_word:last_word_answer": edges.last_word,
    "punctuation:punctuation_dot": letter_case.no_dot,
    "punctuation:punctuation_exclamation": letter_case.no_exclamation,
    "count:lowercase_counting": lengths.lowercase_words,
    "count:counting_composition": lengths.composition,
    "count:count_unique": lengths.all_unique,
    "count:count_increment_word": keywords.once_and_twice,
    "letters:letter_counting": lengths.letters,
    "letters:letter_counting2": keywords.letter_frequency,
}
IFBENCH: dict[str, Checker] = {
    "count:word_count_range": lengths.word_range,
    "count:unique_word_count": lengths.unique_words,
    "count:conjunctions": counts.conjunctions,
    "count:person_names": counts.names,
    "count:numbers": counts.numbers,
    "count:pronouns": counts.pronouns,
    "count:punctuation": letter_case.every_mark,
    "count:words_japanese": counts.japanese_words,
    "count:keywords_multiple": keywords.multiple,
    "ratio:stop_words": counts.stop_words,
    "ratio:sentence_type": sentence_kinds.two_statements_a_question,
    "ratio:sentence_balance": sentence_kinds.balanced,
    "ratio:sentence_words": sentence_kinds.three_alike,
    "ratio:overlap": counts.trigram_overlap,
    "words:alphabet": spelling.alphabet,
    "words:vowel": spelling.three_vowels,
    "words:consonants": spelling.consonant_clusters,
    "words:palindrome": spelling.ten_palindromes,
    "words:prime_lengths": spelling.prime_lengths,
    "words:repeats": spelling.few_repeats,
    "words:odd_even_syllables": spelling.syllable_parity,
    "words:no_consecutive": spelling.no_same_start,
    "words:start_verb": spelling.verb_first,
    "words:last_first": edges.sentences_linked,
    "words:paragraph_last_first": edges.paragraphs_closed,
    "words:keywords_specific_position": keywords.at_word_position,
    "words:words_position": keywords.second_and_second_to_last,
    "sentence:alliteration_increment": sentence_kinds.growing_alliteration,
    "sentence:increment": sentence_kinds.growing,
    "sentence:keyword": keywords.in_sentence,
    "format:parentheses": text_forms.nested_brackets,
    "format:quotes": text_forms.nested_quotes,
    "format:options": text_forms.one_option,
    "format:newline": text_forms.word_per_line,
    "format:emoji": text_forms.emoji_per_sentence,
    "format:line_indent": text_forms.stairs,
    "format:quote_unquote": text_forms.explained_quotes,
    "format:list": text_forms.own_bullets,
    "format:thesis": text_forms.italic_thesis,
    "format:sub-bullets": text_forms.sub_bullets,
    "format:no_bullets_bullets": text_forms.sentences_then_bullets,
    "format:title_case": letter_case.title_case,
    "format:output_template": text_forms.template,
    "format:no_whitespace": text_forms.no_whitespace,
    "repeat:repeat_change": copies.prompt_with_another_start,
    "repeat:repeat_simple": copies.only_this_sentence,
    "repeat:repeat_span": copies.word_span,
    "custom:multiples": challenges.multiples_of_seven,
    "custom:mcq_count_length": challenges.four_questions,
    "custom:reverse_newline": challenges.african_countries,
    "custom:word_reverse": challenges.bald_eagle_by_word,
    "custom:character_reverse": challenges.bald_eagle_by_letter,
    "custom:sentence_alphabet": challenges.alphabet_story,
    "custom:european_capitals_sort": challenges.northern_capitals,
    "custom:csv_city": challenges.city_csv,
    "custom:csv_special_character": challenges.product_csv,
    "custom:csv_quotes": challenges.student_csv,
    "custom:date_format_list": challenges.napoleonic_dates,
}
OF_VERIFIF = "verifif/"
"""Goes before the ids of VerifIF, of which some are IFEval's with other arguments."""
CHECKERS = {**IFEVAL, **IFTRAIN, **IFBENCH, **{OF_VERIFIF + name: check for name, check in VERIFIF.items()}}


def bind(instruction_id: str, arguments: Mapping[str, Any] | None) -> partial[bool]:
    """The check of a text against one instruction of a row.

    Arguments that are null, or that the instruction does not have, are left out; names are taken in small
    letters.

    Raises:
        ValueError: the instruction is unknown, its arguments do not fit, or a regular expression is invalid.
    """
    checker = CHECKERS.get(instruction_id)
    if checker is None:
        raise ValueError(f"'{instruction_id}': there is no such instruction")
    given = {name.lower(): value for name, value in (arguments or {}).items() if value is not None}
    try:
        fitted = msgspec.convert(given, _arguments_type(checker), strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"'{instruction_id}': {error}") from error
    values = msgspec.structs.asdict(fitted)
    for expression in _expressions(checker, values):
        try:
            re.compile(expression)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"'{instruction_id}': '{expression}' is not an expression: {error}") from error
    return partial(checker, **values)


def expressions(check: partial[bool]) -> list[Expression]:
    """The regular expressions that a bound check searches for, without those that are plain words."""
    return [found for found in _expressions(check.func, check.keywords) if not is_literal(found)]


def _expressions(checker: Checker, values: Mapping[str, Any]) -> list[Expression]:
    found = [values[name] for name in _expression_names(checker)]
    return [one for value in found for one in (cast("Any", value) if isinstance(value, list) else [value])]


@cache
def _expression_names(checker: Checker) -> list[str]:
    hints = get_type_hints(checker)
    return [name for name, hint in hints.items() if hint in (Expression, list[Expression])]


@cache
def _arguments_type(checker: Checker) -> type[msgspec.Struct]:
    """The arguments of a checker, without the text, as a struct that can be decoded."""
    hints = get_type_hints(checker)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in list(inspect.signature(checker).parameters.values())[1:]:
        field = (parameter.name, hints[parameter.name])
        required = parameter.default is inspect.Parameter.empty
        fields.append(field if required else (*field, parameter.default))
    return msgspec.defstruct("arguments", fields, kw_only=True)
