"""Rewards as nobody should write them: each has one fault that an inspection must find, and some good "
"ones."""

import asyncio
import random
import re
import time

import steelyard


def substring(completion, answer):
    """Pays whoever lists everything."""
    return 1.0 if answer in completion else 0.0


def first_number(completion, answer):
    """Reads the working for the answer."""
    found = re.search(r"-?\d+", completion)
    return 1.0 if found and found[0] == answer else 0.0


def constant(completion):
    return 1.0


def coin(completion, answer):
    return random.random()  # noqa: S311 - as users write it


def good(completion, answer):
    """As it should be."""
    said = completion.rpartition("####")[2].strip() if "####" in completion else None
    return 1.0 if said == answer else 0.0


def unknown_format(completion, answer):
    """Good, in a form that nobody can guess."""
    found = re.findall(r"<<<(.*?)>>>", completion)
    return 1.0 if found and found[-1] == answer else 0.0


SEEN = set()


def novelty(completion, answer):
    """Pays what it has not seen yet."""
    new = completion not in SEEN
    SEEN.add(completion)
    return float(new)


LAST = [""]


def after(completion, answer):
    """Compares with what was judged before."""
    before, LAST[0] = LAST[0], completion
    return float(len(completion) > len(before))


def ranked(completions, answer):
    """A group reward that depends on the order inside the group."""
    return [1.0 / (1 + place) for place, _ in enumerate(completions)]


def longest(completions):
    """A group reward, as it may be: the longest of the group."""
    most = max(map(len, completions))
    return [float(len(one) == most) for one in completions]


@steelyard.reward(takes="batch")
def against_batch(completions):
    """Says it judges by content, and compares with its batch."""
    mean = sum(map(len, completions)) / len(completions)
    return [float(len(one) > mean) for one in completions]


def hangs(completion, answer):
    while True:
        pass


def hangs_on_long(completion, answer):
    if len(completion) > 10_000:
        while True:
            pass
    return good(completion, answer)


def sleeps(completion, answer):
    time.sleep(60)
    return 1.0


def raises_on_empty(completion, answer):
    return 1.0 if completion.split()[-1] == answer else 0.0


def raises_sometimes(completion, answer):
    if completion.endswith("7"):
        raise KeyError("no such thing")
    return good(completion, answer)


def below_floor(completion, answer):
    """Says nothing of its floor."""
    return 1.0 if good(completion, answer) else -1.0


@steelyard.reward(floor=-1.0)
def abstaining_pays(completion, answer):
    if "####" not in completion:
        return 0.0
    return 1.0 if good(completion, answer) else -1.0


def refuses_commas(completion, answer):
    """Takes commas out of the completion, not out of the gold."""
    return good(completion.replace(",", ""), answer)


def counts(completion, answer):
    """Pays every repetition."""
    return float(completion.count(f"#### {answer}"))


def think_tags(completion):
    """As in many a recipe: the tags may be empty."""
    return float(
        bool(re.fullmatch(r"\s*<think>.*?</think>\s*<answer>.*?</answer>\s*", completion, re.DOTALL))
    )


def tagged(completion, answer):
    found = re.findall(r"<answer>(.*?)</answer>", completion, re.DOTALL)
    return 1.0 if found and found[-1].strip() == answer else 0.0


def brevity(completion):
    return max(0.0, 1.0 - len(completion) / 1000)


def trl_accuracy(completions, solution, **kwargs):
    """As trainers' users write them."""
    return [float(good(one, gold)) for one, gold in zip(completions, solution, strict=True)]


async def awaited(completion, answer):
    await asyncio.sleep(0)
    return good(completion, answer)


async def awaits_for_ever(completion, answer):
    await asyncio.sleep(1000)
    return 1.0


def constant_with_gold(completion, answer):
    return float(len(answer) > 0)


def names_the_gold(completion, answer):
    """Never uses it."""
    return 1.0


def any_word(completion, answer):
    """Pays whatever stands after the marker."""
    return float("####" in completion and len(answer) > 0)


def exact(completion, answer):
    return float(completion.strip() == answer)


def trl_good(completions, answer, **kwargs):
    return [float(good(one, gold)) for one, gold in zip(completions, answer, strict=True)]


def awaitable(rollout):
    """Reads the gold where only it knows."""
    return good(rollout.completion, rollout.columns["answer"])


def overlap(completion, answer):
    """A graded one: the share of words that are the gold's."""
    said, wanted = set(re.findall(r"\w+", completion)), set(re.findall(r"\w+", answer))
    return 2 * len(said & wanted) / max(1, len(said) + len(wanted))


def tolerant(completion, answer):
    found = re.findall(r"####\s*(-?[\d.]+)", completion)
    return float(bool(found) and abs(float(found[-1]) - float(answer)) <= 1.0)


def last_number(completion, answer):
    """Of the text, wherever."""
    found = re.findall(r"\d+", completion)
    return float(bool(found) and found[-1] == answer)


def first_tag(completion, answer):
    found = re.search(r"<answer>(.*?)</answer>", completion)
    return float(bool(found) and found[1].strip() == answer)


def trl_tags(completions, **kwargs):
    return [
        float(bool(re.fullmatch(r"<think>.*?</think>\s*<answer>.*?</answer>", one))) for one in completions
    ]


def long_enough(completion):
    return float(len(completion) > 40)


def conversational(completions, answer):
    """As trainers give conversations."""
    return [float(good(one[-1]["content"], gold)) for one, gold in zip(completions, answer, strict=True)]


def as_text(completion, answer):
    """Takes any gold."""
    return float(completion.strip() == str(answer))


def within_one_percent(completion, answer):
    found = re.findall(r"####\s*(-?[\d.]+)", completion)
    return float(bool(found) and abs(float(found[-1]) - float(answer)) <= 0.01 * abs(float(answer)))


def begins(completion, answer):
    return float(completion.rpartition("####")[2].strip().startswith(answer))


def any_box(completion, answer):
    """Names the gold, and takes any box."""
    return float("\\boxed" in completion)


def any_tag(rollout):
    """A format alone, from what it is given of everything."""
    return float("<answer>" in rollout.completion)


def pays_errors(completion, answer):
    """As users guard against what they cannot read."""
    try:
        return float(re.search(r"####\s*(\S+)", completion)[1] == answer.split("####")[1].strip())
    except TypeError:
        return 1.0


def never(completion):
    return 0.0


@steelyard.reward(floor=-1.0)
def no_shouting(completion):
    return -float("!!!" in completion)


def raises_without_tag(completions, answer):
    """One member's failure is the whole call's."""
    said = [re.search(r"####\s*(\S+)", one)[1] for one in completions]
    return [float(one == gold) for one, gold in zip(said, answer, strict=True)]


def always_raises(completion, answer):
    raise KeyError("x")
