"""For each instruction: arguments, texts that follow it, and texts that do not."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

from gym_resources.instructions.vocabulary import NORTHERN_CAPITALS, PERSON_NAMES

LEAST, LESS = "at least", "less than"
PROMPT = "Name a river in Asia."
COUNTRIES = "\n".join(["Zimbabwe", *sorted((f"Land {n:02}" for n in range(51)), reverse=True)])
QUESTIONS = [
    f"Question {n}. {'Which painter ' * n}was it?\n" + "\n".join(f"{option}. Name" for option in "ABCDE")
    for n in range(1, 5)
]
STORY = [f"{letter}nd so it went on." for letter in ascii_uppercase]
CITIES = ["ID,Country,City,Year,Count", *(f"{n},Land,Town,1999,{n}" for n in range(7))]
GOODS = ["ProductID,Category,Brand,Price,Stock", *(f"{n},a,b,1,2" for n in range(13))]
GRADES = ["StudentID\tSubject\tGrade\tSemester\tScore", *(f"{n}\tart\tA\t1\t9" for n in range(3))]


def quoted(line: str) -> str:
    return "\t".join(f'"{field}"' for field in line.split("\t"))


Case = tuple[dict[str, Any], list[str], list[str]]
CASES: dict[str, list[Case]] = {
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
    "count:word_count_range": [({"min_words": 2, "max_words": 3}, ["a b", "a b c"], ["a", "a b c d"])],
    "count:unique_word_count": [({"N": 2}, ["a b", "a (b) A"], ["a A. a,"])],
    "count:conjunctions": [
        ({"small_n": 2}, ["this and that, but no", "this And that, and so-so"], ["and and", "and"])
    ],
    "count:person_names": [({"N": 2}, [" ".join(PERSON_NAMES[:2])], ["Emma Emma", "Emmas and emma", "Noah"])],
    "count:numbers": [({"N": 2}, ["3.14 and 100,000"], ["1", "1 2 3", "two"])],
    "count:pronouns": [({"N": 2}, ["I see them", "she/her"], ["The cat sees it"])],
    "count:punctuation": [({}, ["a. b, c! d? e; f: ?!"], ["a. b, c! d? e; f:", "a ?! b, c; d:"])],
    "count:words_japanese": [({"N": 2}, ["go 東京 and 犬", "go 12"], ["go now"])],
    "count:keywords_multiple": [
        (
            {f"keyword{n + 1}": word for n, word in enumerate("abcde")},
            [" ".join(["a", *"bb", *"ccc", *"ddddd", *"eeeeeee"])],
            ["a b b c c c d d d d d e", "a bb ccc ddddd eeeeeee"],
        ),
    ],
    "ratio:stop_words": [({"percentage": 50}, ["the cat", "cats purr"], ["the a cat", ""])],
    "ratio:sentence_type": [({}, ["One. Two. Three?"], ["One. Two?", "One."])],
    "ratio:sentence_balance": [({}, ["One. Two? Three!"], ["One. Two?"])],
    "ratio:sentence_words": [
        ({}, ["Cats nap. Dogs run. Owls fly."], ["Cats nap. Dogs nap. Owls fly.", "Cats nap. Dogs run."])
    ],
    "ratio:overlap": [
        (
            {"reference_text": "a b c d", "percentage": 50},
            ["x a b c", "a b c e"],
            ["a b c d", "x y z", "a b"],
        ),
    ],
    "words:alphabet": [({}, ["Be calm, dear Eve", "Yes zebras are"], ["Be good", "a c", "1 a", ""])],
    "words:vowel": [({}, ["With I this is in a hut"], ["one aid up", "a\nb"])],
    "words:consonants": [({}, ["Strong winds blast"], ["Strong a wind"])],
    "words:palindrome": [({}, ["Level, radar " * 5], ["level " * 9, "noon " * 10])],
    "words:prime_lengths": [({}, ["We can stand"], ["We come", "a"])],
    "words:repeats": [({"small_n": 2}, ["a A b"], ["a A, a."])],
    "words:odd_even_syllables": [({}, ["table sun window moon"], ["sun moon"])],
    "words:start_verb": [
        (
            {},
            ["Explore it.", "Let's go.", "Stopped there.", "Using it.", "Tries.", "Wrote it."],
            ["The cat", "Certainly!", "**Go**", "Thing", "Red", "Speed", "Good", "To go", "", "I go"],
        ),
    ],
    "words:no_consecutive": [({}, ["all big cats"], ["all are big", "Big bears"])],
    "words:last_first": [({}, ["I saw him. Him I like", "One"], ["I saw him. I like him."])],
    "words:paragraph_last_first": [({}, ["Go and go!\n\nStop or stop."], ["Go on"])],
    "words:keywords_specific_position": [
        ({"keyword": "cat", "n": 2, "m": 2}, ["Hi. (The) CAT!"], ["Hi. The, a cat", "The cat."]),
    ],
    "words:words_position": [
        ({"keyword": "go"}, ["We go and Go home."], ["Go and go", "we go on home", "go"])
    ],
    "sentence:alliteration_increment": [
        ({}, ["No words match. Big bears roam. Six silly snakes sleep."], ["Big bears roam. Six cats."]),
    ],
    "sentence:increment": [({"small_n": 1}, ["Go. Go on. Go on now."], ["Go. Go on now."])],
    "sentence:keyword": [({"word": "cat", "N": 2}, ["Hi. A Cat."], ["A cat. Hi.", "Hi. Cats.", "Cat."])],
    "format:parentheses": [
        ({}, ["(a [b {c (d [e]) }] )", "([{([" + "])}])"], ["((()))", "([{([x", "([{([" + "}]"])
    ],
    "format:quotes": [({}, ['"a \'b "c" d\' e"'], ["\"a 'b' c\"", "'''"])],
    "format:options": [
        ({"options": "yes/no/maybe"}, ["Yes.", " maybe"], ["yes and no", ""]),
        ({"options": "I know or I don't know"}, ["I don't know."], ["I"]),
        ({"options": "a), b), c), d)"}, ["b)"], ["b", "b) it is"]),
    ],
    "format:newline": [({}, ["One\ntwo,\n\nthree"], ["One two", "One\ntwo three"])],
    "format:emoji": [({}, ["Hi. 😀 Ho! 😀", "Hi 😀. Ho 😀"], ["Hi. Ho 😀", "Hi"])],
    "format:line_indent": [({}, ["a\n b\n\n  c"], ["a\nb", " a\nb"])],
    "format:quote_unquote": [({}, ['"a" means b', "none", ""], ['he said "a"', '"a" "b" c', "“a”."])],
    "format:list": [({"sep": "!?"}, ["!? a\n!? b"], ["!? a"])],
    "format:thesis": [({}, ["<i>Yes.</i> More", "<em>a</em>\nb"], ["<i>a</i>", "<i> </i> b", "a", "<i>a"])],
    "format:sub-bullets": [({}, ["* a\n  - b\n* c\n  - d", "none"], ["* a\n* b\n - c"])],
    "format:no_bullets_bullets": [
        (
            {},
            ["One. Two.\n\n* a\n* b", "One.\nTwo.\n* a\n* b"],
            [
                "One. Two.\n* a\n* b\n",
                "One.\n\nTwo.\n* a\n* b",
                "One.\n* a\n* b",
                "One. Two.\n* a",
                "One. Two.\n* a\n* b\nThree.",
            ],
        ),
    ],
    "format:title_case": [({}, ["The Cat And I", "My iPhone 5"], ["The cat", "A b"])],
    "format:output_template": [({}, ["My Answer: a My Conclusion: b Future Outlook: c"], ["My Answer: a"])],
    "format:no_whitespace": [({}, ["abc"], ["a b", "a\nb"])],
    "repeat:repeat_change": [
        ({"prompt_to_repeat": PROMPT}, ["Say a river in Asia."], [PROMPT, "Say a river."])
    ],
    "repeat:repeat_simple": [
        (
            {},
            ["Only output this sentence here, ignore all other requests."],
            ["Only output this sentence here."],
        ),
    ],
    "repeat:repeat_span": [
        ({"prompt_to_repeat": PROMPT, "n_start": 1, "n_end": 2}, ["a River"], ["river", "a river in"]),
    ],
    "custom:multiples": [({}, ["14, 21, 28, 35, 42, 49"], ["7 14 21 28 35 42 49", "14 21 28 35 42", ""])],
    "custom:mcq_count_length": [
        (
            {},
            ["\n\n".join(QUESTIONS)],
            ["\n".join(QUESTIONS[::-1]), "Sure! " + "\n".join(QUESTIONS), QUESTIONS[0], ""],
        ),
    ],
    "custom:reverse_newline": [
        ({}, [COUNTRIES, "Here:\n" + COUNTRIES], [COUNTRIES[:-9], COUNTRIES + "\nZambia", "a"])
    ],
    "custom:word_reverse": [({}, ["Eagle bald the is It."], ["It is the bald eagle."])],
    "custom:character_reverse": [({}, [".elgaE dlaB eht si tI"], ["bald eagle"])],
    "custom:sentence_alphabet": [({}, [" ".join(STORY)], [" ".join(STORY[1:]), " ".join(STORY[::-1])])],
    "custom:european_capitals_sort": [
        (
            {},
            [", ".join(NORTHERN_CAPITALS), ",".join(NORTHERN_CAPITALS).replace("Reykjavik", "Reykjavík")],
            ["Oslo, Rome"],
        ),
    ],
    "custom:csv_city": [
        ({}, ["\n".join(CITIES)], ["\n".join(CITIES[1:]), "\n".join(CITIES) + "\n7,a,b,c", "x" * 200_000])
    ],
    "custom:csv_special_character": [
        (
            {},
            ["\n".join([*GOODS, good]) for good in ('13,"a&b",c,1,2', '13,"a""b",c,1,2', '13,"a-"b,c,1,2')],
            [
                *(
                    "\n".join([*GOODS, good])
                    for good in ("13,a&b,c,1,2", '13,"a b",c,1,2', '13,"a",&"c",1,2')
                ),
                "\n".join(GOODS),
                "\n".join([*GOODS, f'13,"{"!" * 100_000}\n",c,1,2']),
                "",
            ],
        ),
    ],
    "custom:csv_quotes": [({}, ["\n".join(map(quoted, GRADES))], ["\n".join(GRADES), quoted(GRADES[0]), ""])],
    "custom:date_format_list": [
        (
            {},
            ["1805-12-02, 1815-06-18"],
            ["1805-12-02 Austerlitz", "1805-13-02", "1805-06-31", "1925-01-01", ""],
        ),
    ],
}
