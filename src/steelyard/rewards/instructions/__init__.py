"""Instructions that a program can check, as IFEval and IFBench publish them, under their ids.

The rules are those of the published checkers, quirks included, for that is what users train against and
compare with: IFEval's 25 kinds and IFBench's 58, as IFBench's recorded results have them. A later revision
of IFBench reads sentences with NLTK's punkt model, names and keywords at word boundaries, and more
pronouns; it is another checker under the same ids and is not covered. All but ten kinds need nothing;
those ten ask a package (`packaged`), and a row with one of them is bad where that is missing.

Where we differ: the text behind the thinking is judged, and nothing visible is never enough. A text that
the published checker fails on with an exception does not follow. `<stop>` and `<prd>`, with which it marks
sentences, mark none when a completion writes them. And IFEval's regular expressions: see `ifeval`.

**A form alone can be farmed.** Pay for it beside a reward that reads the answer, or gate it with one. A
single full stop follows `no_comma`, `forbidden_words`, `sub-bullets`, `line_indent`, `newline`,
`no_whitespace`, `prime_lengths`, `repeats`, `no_consecutive`, `last_first`, `vowel`, `words_japanese`,
`sentence:increment`, `alliteration_increment` and every "less than": it has none of what they speak of. So
does a text without the end of a sentence `sentence_type` and `sentence_balance`, one without quotes
`quote_unquote`, and one without letters `response_language`. `And`, `and` and `and,` are three
conjunctions, one palindrome ten times is ten, and five opening brackets need one that closes.

`reward` has the reward; `ifeval`, `counts`, `words`, `formats`, `tasks` and `packaged` have the kinds.
"""

from steelyard.rewards.instructions.reward import (
    KINDS,
    instructions,
    instructions_fault,
    judge_instructions,
)

__all__ = ["KINDS", "instructions", "instructions_fault", "judge_instructions"]
