"""For each instruction of IFTrain: arguments, texts that follow it, and texts that do not."""

from __future__ import annotations

from resources.instructions.case import LEAST, LESS, PROMPT, Case

IFTRAIN_CASES: dict[str, list[Case]] = {
    "copy:repeat_phrase": [
        (
            {"phrase": "Time flies when having fun", "small_n": 2},
            [
                "Time flies while having fun. Time goes when having fun.",
                "Time flies when having fun. Time goes when having fun.",
                "Time flies when having fun. Time flies when fun.",
            ],
            [
                "Time flies while having fun.",
                "Time goes when having fun. Time flies when having fun.",
                "Time goes while having fun. Time goes when having fun.",
                "Time flies always when having fun. Time goes when having fun.",
                "Time " * 1000,
            ],
        ),
    ],
    "copy:copy": [({"prompt_to_repeat": PROMPT}, [f" {PROMPT.lower()}\n"], [PROMPT + " Ob", ""])],
    "copy:copying_simple": [({"prompt_to_repeat": PROMPT}, [PROMPT], ["Ob"])],
    "copy:copying_multiple": [
        (
            {"prompt_to_repeat": PROMPT, "N": 2},
            [f"{PROMPT}\n******\n{PROMPT}"],
            [PROMPT, f"{PROMPT}******{PROMPT}******{PROMPT}", f"{PROMPT}******Ob"],
        ),
    ],
    "new:copy_span_idx": [
        ({"prompt_to_repeat": PROMPT, "n_start": 7, "n_end": 12}, ["river", " RIVER "], ["a river", "rive"]),
        ({"prompt_to_repeat": PROMPT, "n_start": 0, "n_end": 3}, ["nam"], ["name", "ame"]),
    ],
    "detectable_format:sentence_hyphens": [({}, ["One.-Two.-Three", "One"], ["One. Two.", "One. - Two."])],
    "detectable_format:square_brackets": [({}, ["[a] [b]"], ["[a] b", "[a b]"])],
    "detectable_format:bigram_wrapping": [
        ({}, ["<<I am>> <<at home>>", "<<a b>> c"], ["I am", "<<I>> <<am>> at home"])
    ],
    "keywords:no_adjacent_consecutive": [({}, ["a c e", "b a"], ["a b", "All boys"])],
    "keywords:word_once": [({"keyword": "cat"}, ["A Cat."], ["cat cats", "dog"])],
    "keywords:word_count_different_numbers": [
        ({"keyword": "cat", "frequency": 2, "relation": LEAST}, ["cat cat cat"], ["cat"]),
        ({"keyword": "cat", "frequency": 2}, ["cat cat"], ["cat", "cat cat cat"]),
    ],
    "keywords:exclude_word_harder": [({"keyword": "cat"}, ["Cats, a cat."], ["a cat sat"])],
    "keywords:palindrome": [({}, ["An otto sat", "a word"], ["Otto sat", "level."])],
    "keywords:keyword_specific_position": [
        (
            {"keyword": "cat", "n": 2, "m": 3},
            ["Hi. See the cat."],
            ["See the cat.", "Hi. See a small cat", "Hi. See the Cat"],
        ),
    ],
    "keywords:start_end": [({}, ["Go and go", "a a"], ["Go and go.", "go"])],
    "paragraphs:paragraphs": [({}, ["a\n***\nb"], ["a\n\nb", "a***b***c"])],
    "paragraphs:paragraphs2": [({}, ["a\n\nb", "a\n\nb\n\n"], ["a\nb", "a\n\nb\n\nc", "a\n\n\n\nb"])],
    "first_word:first_word_sent": [({"first_word": "we"}, ["We go. we stop! We go"], ["We go. They stop."])],
    "first_word:first_word_answer": [
        ({"first_word": "We"}, ["we go. They stop."], ["They go", "We, too", ""])
    ],
    "last_word:last_word_sent": [({"last_word": "home"}, ["Go home. At Home!"], ["Go home. Away."])],
    "last_word:last_word_answer": [
        ({"last_word": "Contest"}, ["the contest.", "**contest**"], ["contest it", ""])
    ],
    "punctuation:punctuation_dot": [({}, ["a!"], ["a.", "3.5"])],
    "punctuation:punctuation_exclamation": [({}, ["a."], ["a!"])],
    "count:lowercase_counting": [({"N": 2}, ["Two small words Here"], ["three more small words"])],
    "count:counting_composition": [
        (
            {"n_sent": 1, "n_words": 3},
            ["Go on. *** Go on.***Go on."],
            [
                "Go on. * * * Go on. * * * Go on.",
                "Go on. *** Go on.",
                "Go on. *** Go on. *** Go.",
                "Go on. *** Go on. Go on. *** Go on.",
            ],
        ),
    ],
    "count:count_unique": [({}, ["Each word once."], ["The the the", "One. Two."])],
    "count:count_increment_word": [
        ({"keyword1": "cat", "keyword2": "dog"}, ["A cat, a dog, DOGS"], ["cat cat dog dog", "cat dog"]),
    ],
    "letters:letter_counting": [
        ({"N": 3, "relation": LEAST}, ["abc"], ["ab 1!"]),
        ({"N": 3, "relation": LESS}, ["ab é"], ["abc"]),
    ],
    "letters:letter_counting2": [({"letter": "A", "let_frequency": 2, "let_relation": LESS}, ["a"], ["aA"])],
}
