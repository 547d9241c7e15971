"""An instruction is followed by what follows it and by nothing else, as its checker was published."""

import json
import pickle
import re
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.rewards import instructions as package
from steelyard.rewards.instructions import (
    KINDS,
    instructions,
    instructions_fault,
    judge_instructions,
    packaged,
)
from steelyard.rewards.instructions.reading import sentences

OWN = {id_: one for id_, one in KINDS.items() if id_ not in packaged.KINDS}
FIVE = {"keyword1": "a1", "keyword2": "b1", "keyword3": "c1", "keyword4": "d1", "keyword5": "e1"}
FIVE_USED = "A1 b1 B1 c1c1c1 d1 d1 d1 d1 d1 e1e1e1 e1e1e1 E1"
STUDENTS = "StudentID\tSubject\tGrade\tSemester\tScore\n"
QUOTED = '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"\n'
PRODUCTS = "ProductID,Category,Brand,Price,Stock\n"
CITIES = "ID,Country,City,Year,Count\n"
CAPITALS = (
    "Reykjavík, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, "
    "Berlin, Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, "
    "Vaduz, Chișinău, Bern, Ljubljana, Zagreb"
)
AFRICA = ["Zimbabwe", *(f"C{first}{second}" for first in "zyx" for second in "zyxwvutsrqponmlkjihgfedcba")]
QUIZ = "\n\n".join(
    f"Question {number}: {'so ' * number}what?\n" + "\n".join(f"{letter}) this" for letter in "ABCDE")
    for number in range(1, 5)
)
A_TO_Z = " ".join(f"{letter}ll is well." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")

# id: (arguments, texts that follow, texts that do not)
CASES = {
    "keywords:existence": ({"keywords": ["C++", "tea"]}, ["Tea and c++"], ["tea and C", "c++"]),
    "keywords:frequency": (
        {"keyword": "a.b", "frequency": 2.0, "relation": "at least"},
        ["a.b A.B", "xa.ba.b"],
        ["a.b axb", ""],
    ),
    "keywords:forbidden_words": ({"forbidden_words": ["cat", "dog"]}, ["concatenate"], ["Cat!", "a dog"]),
    "keywords:letter_frequency": (
        {"letter": "E", "let_frequency": 2, "let_relation": "less than"},
        ["one", "x"],
        ["Eel", "three"],
    ),
    "length_constraints:number_words": (
        {"num_words": 3, "relation": "at least"},
        ["one, two. three", "a-b-c"],
        ["one two", "..."],
    ),
    "length_constraints:number_paragraphs": (
        {"num_paragraphs": 2},
        ["a\n***\nb", "*** a *** b ***"],
        ["a", "a *** *** b", "a *** b *** c"],
    ),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
        ["First.\n\nThen, it ends.", "x\n\n'\"then'."],
        ["Then\n\nFirst", "x\n\nthen\n\ny", "x", "x\n\n\n\nthen"],
    ),
    "detectable_content:number_placeholders": (
        {"num_placeholders": 2},
        ["[a] []", "[[a] x [b]"],
        ["[a] [b", "a"],
    ),
    "detectable_content:postscript": (
        {"postscript_marker": "P.S."},
        ["Bye.\nP.S. Hi", "p. s. hi"],
        ["PS hi", "P.P"],
    ),
    "detectable_format:number_bullet_lists": (
        {"num_bullets": 2},
        ["* a\n* b", "x\n\n  - a\n\n  * b", "- a\n-b"],
        ["* a", "** a\n** b", "* a\n* b\n- c"],
    ),
    "detectable_format:constrained_response": ({}, ["Well. My answer is no."], ["My answer is No."]),
    "detectable_format:number_highlighted_sections": (
        {"num_highlights": 2},
        ["*a* and *b*", "**a**x**b**"],
        ["*a*", "* * **", "*a\nb*"],
    ),
    "detectable_format:multiple_sections": (
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb"],
        ["Section 1", "section 1 section 2", "Section a Section b"],
    ),
    "detectable_format:json_format": (
        {},
        ['{"a": 1}', '```json\n[1, "b"]\n```', "3"],
        ["{'a': 1}", "[" * 100_000, "1" * 5_000, "so: {}"],
    ),
    "detectable_format:title": ({}, ["<<On tea>>\nIt", "a << b >> c"], ["<<>>", "<< >>", "<<a\n>>", ">>a<<"]),
    "combination:two_responses": (
        {},
        ["a\n******\nb", "******a******b"],
        ["a******a", "a", "a******b******c"],
    ),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Why so?"}, [" why so? Because."], ["So: why so?"]),
    "startend:end_checker": ({"end_phrase": "The end."}, ["... the END.", '"The end." '], ["The end. Bye"]),
    "startend:quotation": ({}, [' "so" ', '""'], ['"', '"so', "so"]),
    "punctuation:no_comma": ({}, ["so"], ["so, no"]),
    "count:word_count_range": ({"min_words": 2, "max_words": 3.0}, ["a b", "a-b c"], ["a", "a b c d"]),
    "count:unique_word_count": ({"N": 3}, ["a b c"], ["a A (a) b"]),
    "count:conjunctions": ({"small_n": 3}, ["and but or", "And and and,"], ["and and but"]),
    "count:person_names": ({"N": 2}, ["Emma met Leo.", "Miami, Leonora"], ["emma met Leo", "Leo, Leo"]),
    "count:numbers": ({"N": 2}, ["3.5 and 1,000", "a1b2"], ["3", "1 2 3"]),
    "count:pronouns": ({"N": 3}, ["she/her/hers", "I see me, myself"], ["who are they", "I, me"]),
    "count:punctuation": ({}, ["a.b,c!d?e;f:?!", ". , ! ? ; : ‽"], [".,!?;", ".,?!;:", ".,! ?;:"]),
    "count:words_japanese": ({"N": 2}, ["a 日本 b カナ", "a 2 b 日"], ["a b c", "日 b"]),
    "count:keywords_multiple": (FIVE, [FIVE_USED], [FIVE_USED + " a1", "a1 b1 c1 d1 e1"]),
    "ratio:stop_words": ({"percentage": 50}, ["The cat", "tea"], ["it is", "the", "..."]),
    "ratio:overlap": (
        {"percentage": 50, "reference_text": "abcd"},
        ["abcdxy", "abcx"],
        ["abcd", "wxyz", "ab"],
    ),
    "ratio:sentence_type": ({}, ["It is. It was. Is it?", "so"], ["It is. Is it?", "It is."]),
    "ratio:sentence_balance": ({}, ["So. So? So!", "so"], ["So. So?", "So."]),
    "ratio:sentence_words": ({}, ["One. Two. Six!"], ["One. Two.", "One. Two. Three."]),
    "words:alphabet": ({}, ["yes, zebras are big", "A"], ["apple cat", "1 2", "..."]),
    "words:vowel": ({}, ["banana bit", "hm", "a e i"], ["a e i o", "a\nb"]),
    "words:consonants": ({}, ["This string begs", "shh"], ["a string", "this is it"]),
    "words:palindrome": ({}, ["Level, " * 10], ["level " * 9, "noon " * 10]),
    "words:prime_lengths": ({}, ["is the fifth", "..."], ["a cat", "four"]),
    "words:repeats": ({"small_n": 2}, ["a A b", "x"], ["a A a."]),
    "words:last_first": ({}, ["I am. Am I? I", "so"], ["I am. You are.", "I am. ... so"]),
    "words:paragraph_last_first": ({}, ["Tea is tea.\n\nso", "(so)"], ["tea is so", "so\n***"]),
    "words:no_consecutive": ({}, ["a cat sat", "x"], ["a ant", "big, bad"]),
    "sentence:keyword": ({"word": "Tea", "N": 2}, ["So. Steam? x"], ["Tea. So.", "Tea."]),
    "sentence:increment": ({"small_n": 2}, ["So. It is so.", "so"], ["So. It is.", "It is so. So."]),
    "sentence:alliteration_increment": (
        {},
        ["One two. Big bad one. Big bad bold.", "so"],
        ["Big bad. One two.", "It is. So."],
    ),
    "format:parentheses": ({}, ["([{([x])}])", "((((( )"], ["((((x))))", "([)]([)]"]),
    "format:quotes": ({}, ['"a \'b "c" d\' e"'], ["\"a 'b' c\"", "a"]),
    "format:options": ({"options": "yes/no/maybe"}, ["Yes.", " maybe "], ["yes no", "perhaps"]),
    "format:newline": ({}, ["one\n\ntwo.\n", "one"], ["one two", "one\ntwo three"]),
    "format:emoji": ({}, ["So 😀. Fine ❤️!", "So. 😀"], ["So 😀. Fine", "So.", "..."]),
    "format:line_indent": ({}, ["a\n b\n   c", "a\n\n b", "a"], ["a\nb", " a\nb"]),
    "format:quote_unquote": ({}, ['"a" means b', "so"], ['a "b"', '"a" "b" c', "“a”"]),
    "format:list": ({"sep": "!?"}, ["!? a !? b"], ["!? a", "- a - b"]),
    "format:thesis": (
        {},
        ["<i>So.</i> It is", "x <em>So</em> y"],
        ["<i>So</i>", "<i> </i> so", "<i>so", "so"],
    ),
    "format:sub-bullets": ({}, ["* a\n - b\n* c\n - d", "so"], ["* a\n* b - c", "**a**"]),
    "format:no_bullets_bullets": (
        {},
        ["It is. It was.\n* a\n* b", "It is.\nSo.\n\n* a\n * b"],
        ["It is.\n* a\n* b", "It is. So.\n* a", "It is. So.\n* a\n* b\nBye."],
    ),
    "format:output_template": (
        {},
        ["My Answer: a My Conclusion: b Future Outlook: c"],
        ["My Answer: a My conclusion: b Future Outlook: c"],
    ),
    "format:no_whitespace": ({}, ["so"], ["so so", "so\n"]),
    "custom:multiples": (
        {},
        ["14, 21, 28, 35, 42, 49", "14,21,28,35,42,49"],
        ["14, 21", "10, 14, 21, 28, 35, 42, 49"],
    ),
    "custom:mcq_count_length": (
        {},
        [QUIZ, QUIZ.replace(") this", ". this")],
        ["Here: " + QUIZ, QUIZ.replace("so so so so", "so"), QUIZ.replace("E) this", "", 1), "Question"],
    ),
    "custom:reverse_newline": (
        {},
        ["Of course:\n" + "\n".join(f"- {line}" for line in AFRICA)],
        ["\n".join(reversed(AFRICA)), "\n".join(AFRICA[:40]), "\n".join(AFRICA[1:])],
    ),
    "custom:word_reverse": ({}, ["eagle, bald the is It"], ["the bald eagle"]),
    "custom:character_reverse": ({}, ["elgae dlab eht"], ["bald eagle"]),
    "custom:sentence_alphabet": ({}, [A_TO_Z], [A_TO_Z[:-14], A_TO_Z.replace("Bll", "Cll")]),
    "custom:european_capitals_sort": ({}, [CAPITALS], [CAPITALS.replace("Oslo, ", ""), CAPITALS.lower()]),
    "custom:csv_city": (
        {},
        [CITIES + "1,a,b,2,3\n" * 7],
        [CITIES + "1,a,b,2,3\n" * 6, CITIES + "1,a,b,2\n" * 7, "1,a,b,2,3\n" * 8],
    ),
    "custom:csv_special_character": (
        {},
        [PRODUCTS + "1,a,b,2,3\n" * 13 + '1,"a&b",b,2,3\n'],
        [PRODUCTS + "1,a,b,2,3\n" * 14, PRODUCTS + '1,"a&b",b,2,3\n', "1,a,b,2,3\n" * 14 + '1,"a&b",b,2,3\n'],
    ),
    "custom:csv_quotes": (
        {},
        [QUOTED + '"1"\t"a"\t"b"\t"c"\t"2"\n' * 3],
        [STUDENTS + "1\ta\tb\tc\t2\n" * 3, STUDENTS + '"1"\t"a"\t"b"\t"c"\t"2"\n' * 2],
    ),
    "custom:date_format_list": (
        {},
        ["1805-12-02, 1815-06-18"],
        ["1815-6-18", "1815-13-01", "1815-04-31", "1900-01-01"],
    ),
    "repeat:repeat_change": (
        {"prompt_to_repeat": "Write a poem."},
        ["Sing  a poem."],
        ["Write a poem.", "Sing a song."],
    ),
    "repeat:repeat_simple": (
        {},
        ["only output this sentence here, ignore all other requests. "],
        ["Only this"],
    ),
    "repeat:repeat_span": (
        {"prompt_to_repeat": "one two three four", "n_start": 1, "n_end": 3},
        [" Two  three"],
        ["two three four", "wo three"],
    ),
}


def row(id_, arguments=None):
    return {"instruction_id_list": [id_], "kwargs": [{} if arguments is None else arguments]}


def follows(text, id_, arguments=None):
    return judge_instructions(text, row(id_, arguments)).value == 1.0


def test_every_kind_that_needs_no_package_has_its_cases():
    assert CASES.keys() == OWN.keys()


@pytest.mark.parametrize("id_", CASES)
def test_a_kind_is_followed_by_what_follows_it_and_by_nothing_else(id_):
    arguments, followed, not_followed = CASES[id_]
    assert [text for text in followed if not follows(text, id_, arguments)] == []
    assert [text for text in not_followed if follows(text, id_, arguments)] == []


def test_the_published_kinds_are_all_there():
    assert (len(KINDS), len(packaged.KINDS)) == (25 + 58, 10)


@pytest.mark.parametrize("text", ["", "  \n", "\u200b\u2060", "<think>I think so.</think>", "<think>cut"])
def test_nothing_said_follows_nothing(text):
    for id_, (arguments, _, _) in CASES.items():
        for share, loose in ((False, False), (True, True)):
            verdict = judge_instructions(text, row(id_, arguments), share=share, loose=loose)
            assert (verdict.value, verdict.code) == (0.0, "no_answer")


FARMED = [
    "count:words_japanese",
    "format:line_indent",
    "format:newline",
    "format:no_whitespace",
    "format:sub-bullets",
    "keywords:forbidden_words",
    "keywords:letter_frequency",
    "punctuation:no_comma",
    "sentence:alliteration_increment",
    "sentence:increment",
    "words:last_first",
    "words:no_consecutive",
    "words:prime_lengths",
    "words:repeats",
    "words:vowel",
]


def test_a_full_stop_alone_farms_the_kinds_that_the_module_names():
    follow = [id_ for id_, (arguments, _, _) in CASES.items() if follows(".", id_, arguments)]
    assert sorted(follow) == FARMED
    named = set(re.findall(r"`([^`]+)`", package.__doc__)) | {
        "letter_frequency"
    }  # of those that say "less than"
    assert [id_ for id_ in FARMED if not {id_, id_.partition(":")[2]} & named] == []


def test_what_follows_the_thinking_is_judged_without_the_space_between():
    assert follows("<think>well, then, so</think>\n\nso\n", "format:no_whitespace")
    assert not follows("so\n", "format:no_whitespace")


def test_all_must_be_followed_or_the_share_is_paid():
    columns = {
        "instruction_id_list": ["punctuation:no_comma", "startend:quotation", "count:numbers"],
        "kwargs": [None, {"N": None}, {"N": 0.0, "word": None}],
    }
    verdict = judge_instructions("so", columns)
    assert (verdict.value, verdict.code) == (0.0, "wrong")
    assert verdict.reason == "startend:quotation is not followed; 2 of 3 are"
    assert judge_instructions("so", columns, share=True).value == pytest.approx(2 / 3)
    assert judge_instructions('"so"', columns, share=True) == judge_instructions('"so"', columns)
    assert judge_instructions('"so"', columns).value == 1.0


@pytest.mark.parametrize("text", ["Sure:\nso", "so\nBye, now", "Sure:\nso\nBye", "*so*", "Sure:\n**so**"])
def test_loose_also_takes_the_text_without_its_first_or_last_line_or_its_asterisks(text):
    columns = row("format:options", {"options": "so/no"})
    if "\n" in text:
        assert judge_instructions(text, columns).value == 0.0
    assert judge_instructions(text, columns, loose=True).value == 1.0


def test_loose_pays_nothing_for_lines_that_are_left_empty():
    assert judge_instructions("a, b\nc, d", row("punctuation:no_comma"), loose=True).value == 0.0


def test_a_completion_cannot_write_the_marks_that_end_sentences():
    for mark in ("<stop>", "<prd>", "\ue000", "\ue001"):
        assert len(sentences(f"so{mark}so{mark}so")) == 1
    assert sentences("so\ue000. so") == ["so.", "so"]


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("Dr. Who met Mr. Fox at 3.30. Fine!", ["Dr. Who met Mr. Fox at 3.30.", "Fine!"]),
        ("See x.com. And U.S. law. J. Fox.", ["See x.com.", "And U.S. law.", "J. Fox."]),
        ("Wait... what? So!", ["Wait...", "what?", "So!"]),
        ("She has a Ph.D. in tea. So", ["She has a Ph.D. in tea.", "So"]),
        ("Fox Inc. sells. A.B. He said", ["Fox Inc. sells.", "A.B.", "He said"]),
        ("“It is.” So.", ["“It is”.", "So."]),
        ("no end", ["no end"]),
    ],
)
def test_sentences_are_split_as_published(text, split):
    assert sentences(text) == split


def test_blank_lines_are_left_out_of_stairs_as_the_published_walk_does():
    def published(lines):
        for line in lines:
            if not line.strip():
                lines.remove(line)
        indents = [len(line) - len(line.lstrip(" ")) for line in lines]
        return indents == sorted(set(indents))

    for code in range(4**6):
        lines = [("", " ", "  a", "a")[code >> 2 * place & 3] for place in range(6)]
        text = "\n".join(lines)
        if text.strip():
            assert follows(text, "format:line_indent") == published(lines), lines


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "'instruction_id_list'"),
        ({"instruction_id_list": [], "kwargs": []}, "'instruction_id_list'"),
        ({"instruction_id_list": "punctuation:no_comma", "kwargs": [{}]}, "'instruction_id_list'"),
        ({"instruction_id_list": ["punctuation:no_comma"]}, "'kwargs'"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "'kwargs'"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": ["x"]}, "no object"),
        (row("count:number"), "did you mean 'count:numbers'"),
        (row("count:number"), "count has count:word_count_range, "),
        (row("colour:red"), "the families are change_case, "),
        (row("count:numbers"), "'N' of 'count:numbers' must be a whole number"),
        (row("count:numbers", {"N": None}), "got None"),
        (row("count:numbers", {"N": 2.5}), "got 2.5"),
        (row("count:numbers", {"N": -1}), "got -1"),
        (row("count:numbers", {"N": True}), "got True"),
        (row("count:numbers", {"N": float("nan")}), "got nan"),
        (row("count:words_japanese", {"N": 0}), "from 1"),
        (row("ratio:stop_words", {"percentage": 120}), "from 0 to 100"),
        (row("sentence:keyword", {"word": " ", "N": 1}), "not blank"),
        (row("keywords:existence", {"keywords": []}), "list of texts"),
        (row("keywords:existence", {"keywords": ["tea", 3]}), "must be a text"),
        (row("keywords:letter_frequency", {"letter": "ab"}), "one character"),
        (row("length_constraints:number_words", {"num_words": 3, "relation": "more"}), "'at least'"),
    ],
)
def test_a_row_that_cannot_be_checked_is_bad_and_says_why(columns, said):
    assert said in instructions().lint(columns)
    with pytest.raises(RefusedError, match=r"instruction|column"):
        judge_instructions("so", columns)


def test_the_reward_says_what_it_is_and_can_be_sent():
    reward = pickle.loads(pickle.dumps(instructions(share=True, loose=True)))  # noqa: S301 - our own
    assert (reward.name, reward.floor) == ("instructions:share:loose", 0.0)
    assert reward.identity.startswith("instructions/1:share:loose:")
    assert list(reward.columns) == ["instruction_id_list", "kwargs"]
    assert reward.rule("*so*", row("format:options", {"options": "so/no"})).value == 1.0


# --- kinds that a package checks


@pytest.fixture
def forget():
    """Ask anew what is installed, before and after."""
    packaged._absent.cache_clear()
    yield
    packaged._absent.cache_clear()


ASKED = {
    "keyword": "tea",
    "n": 2,
    "m": 2,
    "num_sentences": 2,
    "relation": "at least",
    "capital_frequency": 2,
    "capital_relation": "less than",
    "language": "en",
}


@pytest.mark.parametrize("id_", packaged.KINDS)
def test_a_kind_whose_package_is_missing_makes_the_row_bad_and_says_what_to_install(monkeypatch, forget, id_):
    monkeypatch.setattr(packaged, "find_spec", lambda name: None)
    fault = instructions().lint(row(id_, ASKED))
    assert fault.startswith(f"instruction '{id_}' cannot be checked here")
    assert "pip install" in fault
    assert ("nltk" in fault) == ("nltk.downloader" in fault)


class Nltk:
    """As much of nltk as is asked, with the data that a test names."""

    def __init__(self, *data):
        def find(path):
            if path.split("/")[1] not in data:
                raise LookupError(path)

        self.data = SimpleNamespace(find=find)

    def word_tokenize(self, text):
        return re.findall(r"n't|\w+?(?=n't)|\w+|[^\w\s]", text)

    def sent_tokenize(self, text):
        return re.findall(r"[^.!?]+[.!?]?", text)

    def pos_tag(self, tokens):
        return [(word, "VBP" if word == "Write" else "NN") for word in tokens]


@pytest.fixture
def nltk(monkeypatch, forget):
    def install(*data):
        monkeypatch.setattr(packaged, "find_spec", lambda name: name)
        monkeypatch.setitem(sys.modules, "nltk", Nltk(*data))

    return install


def test_a_kind_whose_data_is_missing_says_what_to_download(nltk):
    nltk("punkt_tab")
    fault = instructions_fault(row("words:start_verb"))
    assert "python -m nltk.downloader punkt_tab averaged_perceptron_tagger_eng" in fault
    assert instructions_fault(row("format:title_case")) is None


@pytest.mark.parametrize(
    ("id_", "arguments", "followed", "not_followed"),
    [
        ("format:title_case", {}, ["The Cat", "A.B. (Yes)", "iPhone X"], ["The cat", "Don't", "aBC"]),
        ("words:words_position", {"keyword": "tea"}, ["My tea is tea."], ["My tea is Tea.", "tea"]),
        (
            "words:keywords_specific_position",
            {"keyword": "tea", "n": 2, "m": 2},
            ["So. My tea."],
            ["My tea. So.", "So. Tea."],
        ),
        ("words:start_verb", {}, ["Write it.", "  Write"], ["Tea is.", "It Write"]),
        (
            "length_constraints:number_sentences",
            {"num_sentences": 2, "relation": "at least"},
            ["So. It is."],
            ["So it is."],
        ),
        (
            "change_case:capital_word_frequency",
            {"capital_frequency": 2, "capital_relation": "less than"},
            ["so IT is", "so"],
            ["I am IT"],
        ),
    ],
)
def test_what_nltk_reads_is_compared_as_published(nltk, id_, arguments, followed, not_followed):
    nltk("punkt_tab", "averaged_perceptron_tagger_eng")
    assert [text for text in followed if not follows(text, id_, arguments)] == []
    assert [text for text in not_followed if follows(text, id_, arguments)] == []


@pytest.mark.parametrize("id_", [id_ for id_, one in packaged.KINDS.items() if one.absent is packaged._NLTK])
def test_a_text_that_would_take_nltk_minutes_follows_nothing(nltk, id_):
    nltk("punkt_tab")
    assert not follows("A. " * 200_000, id_, {**ASKED, "relation": "at least", "capital_frequency": 10**6})


def test_langdetect_says_the_same_of_equal_texts_and_takes_what_has_no_letters_for_any_language():
    pytest.importorskip("langdetect")
    english = "It is a truth universally acknowledged that a single man must be in want of a wife."
    for language, expected in (("en", True), ("fr", False)):
        judged = {follows(english, "language:response_language", {"language": language}) for _ in range(20)}
        assert judged == {expected}
        assert follows("42", "language:response_language", {"language": language})
    assert "langdetect's languages" in instructions_fault(
        row("language:response_language", {"language": "zz"})
    )
    assert follows(english.upper(), "change_case:english_capital")
    assert follows(english.lower(), "change_case:english_lowercase")
    assert not follows(english, "change_case:english_capital")


def test_syllapy_counts_the_syllables():
    pytest.importorskip("syllapy")
    assert follows("The table is empty.", "words:odd_even_syllables")
    assert not follows("The cat is empty.", "words:odd_even_syllables")


# --- on anything at all


PIECES = (
    ". ",
    "?",
    "!",
    "...",
    "\n",
    "\n\n",
    " ",
    "* ",
    "**",
    "***",
    "******",
    "- ",
    "[",
    "]",
    "(",
    "}",
    "<<",
    ">>",
    "<i>",
    "</i>",
    '"',
    "'",
    "“",
    "Mr. ",
    "U.S. ",
    "Ph.D. ",
    "1805-12-02",
    "Question 1: ",
    "A) x\n",
    "Section 1 ",
    "P.S. ",
    "so ",
    "So ",
    "level ",
    "Zimbabwe\n",
    "bald eagle ",
    "😀",
    "日本 ",
    "İ",
    "\u0301",
    "\x00",
    "\ud800",
    "\x85",
    "\r",
    "```json",
    "{}",
    "ID,Country,City,Year,Count\n",
    "<think>",
    "</think>",
    "\ue000",
    "\ue001",
)


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=25).map("".join)))
def test_no_text_makes_a_check_fail_and_each_says_yes_or_no(text):
    for id_, (arguments, _, _) in CASES.items():
        for loose in (False, True):
            verdict = judge_instructions(text, row(id_, arguments), loose=loose)
            assert (verdict.value, verdict.code) in ((1.0, None), (0.0, "wrong"), (0.0, "no_answer"))


UNITS = ["\n", " ", "[", "<<", "* ", ". ", "Question 1", " \n", "\u0316\u0301", '."']


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_text_of_anything_is_judged_in_linear_time(unit):
    text = "x" + unit * (60_000 // len(unit))
    for id_, (arguments, _, _) in CASES.items():
        start = time.perf_counter()
        follows(text, id_, arguments)
        assert time.perf_counter() - start < 3, id_  # quadratic would take minutes


# --- the recorded verdicts of the published checker


@pytest.mark.needs("data")
def test_every_recorded_verdict_of_a_kind_that_can_be_checked_here_is_met(data_dir):
    path = data_dir / "instructions_ifbench.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    judged, differ = 0, []
    for one in rows:
        recorded = zip(one["instruction_id_list"], one["kwargs"], one["per_instruction"], strict=True)
        for id_, arguments, verdict in recorded:
            if instructions_fault(row(id_, arguments)) is None:
                judged += 1
                if follows(one["completion"], id_, arguments) != verdict:
                    differ.append((one["id"], id_))
        if instructions_fault(one) is None:
            strict = judge_instructions(one["completion"], one).value
            loose = judge_instructions(one["completion"], one, loose=True).value
            if (strict, loose) != (float(one["known_label"]), float(one["label_loose"])):
                differ.append((one["id"], "all"))
    assert differ == []
    assert judged > 0.9 * sum(len(one["instruction_id_list"]) for one in rows)
