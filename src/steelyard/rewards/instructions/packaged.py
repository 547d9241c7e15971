"""Kinds that a package must check, because what they mean is what it says.

Where the package or its data is missing, a row with such a kind is bad and the fault says what to install:
nothing is guessed, and nothing is downloaded in a run. No package on PyPI brings the checkers whole
without downloading when it is imported, so each kind asks for the one thing that it needs.

- `langdetect` draws lots; it is given one seed, so that equal texts get equal verdicts. Like the published
  checker, a text in which it finds no letters counts as any language.
- `nltk` takes quadratic time on some texts, so a text beyond `LONGEST` characters does not follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Final

from steelyard.rewards.answers import LONGEST
from steelyard.rewards.instructions.kind import Kind, compared, kind, positive, relation, text, whole
from steelyard.rewards.instructions.reading import bare, sentences

PACKAGES: Final = ("langdetect", "nltk", "syllapy")
_PUNKT: Final = "tokenizers/punkt_tab/english/"
_TAGGER: Final = "taggers/averaged_perceptron_tagger_eng/"
_READ: Final = 100_000  # characters given to langdetect, which looks at 10,000 once addresses are gone


def versions() -> str:
    """The packages that are installed: their versions decide verdicts."""
    return ",".join(one for one in map(_version, PACKAGES) if one)


def _version(package: str) -> str:
    try:
        return f"{package}-{version(package)}"
    except PackageNotFoundError:
        return ""


@lru_cache
def _absent(package: str, *data: str) -> str | None:
    names = " ".join(path.split("/")[1] for path in data)
    download = f"python -m nltk.downloader {names}"
    if find_spec(package) is None:
        get = f"pip install {package}" + (f" and {download}" if data else "")
        return f"the package {package} is not installed: {get}"
    try:
        for path in data:
            import_module(package).data.find(path)
    except LookupError:
        return f"the data of {package} is not installed: {download}"
    return None


def _needing(package: str, *data: str) -> Callable[[], str | None]:
    return lambda: _absent(package, *data)


_NLTK: Final = _needing("nltk", _PUNKT)
_NLTK_AND_TAGGER: Final = _needing("nltk", _PUNKT, _TAGGER)
_LANGDETECT: Final = _needing("langdetect")


def _tokens(said: str) -> list[str]:
    tokens: list[str] = import_module("nltk").word_tokenize(said) if len(said) <= LONGEST else []
    return tokens


def _title_case(said: str) -> bool:
    tokens = _tokens(said)
    return bool(tokens) and not any(
        token[0].islower() and (token[1:].islower() or token[1:].isupper()) for token in tokens
    )


def _second_and_last_but_one(said: str, keyword: str) -> bool:
    tokens = _tokens(said)
    return len(tokens) > 1 and tokens[1] == tokens[-2] == keyword


def _at(said: str, keyword: str, sentence: int, place: int) -> bool:
    found = sentences(said)
    tokens = _tokens(found[sentence - 1]) if len(found) >= sentence else []
    return len(tokens) >= place and tokens[place - 1] == keyword


def _starts_with_verb(said: str) -> bool:
    tokens = _tokens(said.lstrip()[:1_000])[:5]  # the first tag depends on the first three words
    return bool(tokens) and "VB" in import_module("nltk").pos_tag(tokens)[0][1]


def _sentences(said: str, number: int, how: str) -> bool:
    return len(said) <= LONGEST and compared(len(import_module("nltk").sent_tokenize(said)), how, number)


def _capitals(said: str, number: int, how: str) -> bool:
    return len(said) <= LONGEST and compared(sum(map(str.isupper, _tokens(said))), how, number)


def _syllables_alternate(said: str) -> bool:
    count = import_module("syllapy").count
    odd = [count(word) % 2 for word in bare(said).lower().split()]
    return all(one != following for one, following in pairwise(odd))


@lru_cache
def _detectors() -> Any:  # noqa: ANN401 - langdetect has no types
    langdetect = import_module("langdetect")
    factory = langdetect.DetectorFactory()
    factory.load_profile(langdetect.PROFILES_DIRECTORY)
    factory.seed = 0
    return factory


def _language(said: str) -> str | None:
    """The language of a text; `None` if there is nothing to tell it by."""
    detector = _detectors().create()
    detector.append(said[:_READ])
    try:
        return str(detector.detect())
    except import_module("langdetect").LangDetectException:
        return None


def _in_language(said: str, code: str) -> bool:
    return _language(said) in (code, None)


def _english_capitals(said: str) -> bool:
    return said.isupper() and _in_language(said, "en")


def _english_lower(said: str) -> bool:
    return said.islower() and _in_language(said, "en")


def _code(value: Any) -> str:  # noqa: ANN401
    code = text(value)
    if find_spec("langdetect") is not None and code not in (known := _detectors().get_lang_list()):
        raise ValueError(f"must be one of langdetect's languages: {', '.join(sorted(known))}")
    return code


KINDS: Final[Mapping[str, Kind]] = {
    "length_constraints:number_sentences": kind(
        _sentences, absent=_NLTK, num_sentences=whole, relation=relation
    ),
    "change_case:capital_word_frequency": kind(
        _capitals, absent=_NLTK, capital_frequency=whole, capital_relation=relation
    ),
    "change_case:english_capital": kind(_english_capitals, absent=_LANGDETECT),
    "change_case:english_lowercase": kind(_english_lower, absent=_LANGDETECT),
    "language:response_language": kind(_in_language, absent=_LANGDETECT, language=_code),
    "format:title_case": kind(_title_case, absent=_NLTK),
    "words:words_position": kind(_second_and_last_but_one, absent=_NLTK, keyword=text),
    "words:keywords_specific_position": kind(_at, absent=_NLTK, keyword=text, n=positive, m=positive),
    "words:start_verb": kind(_starts_with_verb, absent=_NLTK_AND_TAGGER),
    "words:odd_even_syllables": kind(_syllables_alternate, absent=_needing("syllapy")),
}
