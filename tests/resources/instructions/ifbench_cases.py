"""For each instruction of IFBench: arguments, texts that follow it, and texts that do not."""

from __future__ import annotations

from string import ascii_uppercase

from gym_resources.instructions.vocabulary import NORTHERN_CAPITALS, PERSON_NAMES
from resources.instructions.case import PROMPT, Case

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


IFBENCH_CASES: dict[str, list[Case]] = {
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
            {"reference_text": "abcd", "percentage": 50},
            ["xabc", "abce"],
            ["abcd", "xyz", "ab", "a b c d"],
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
