"""Users' functions as rewards: what they are given, where they are found, what is refused."""

import functools
import sys
from pathlib import Path

import pytest

import steelyard
from steelyard.errors import RefusedError
from steelyard.outcome import Abstained, Context, How, Scored, Takes
from steelyard.rewards import FunctionReward, named, reward, serving
from steelyard.rewards import own as home
from steelyard.rewards.importing import fingerprint
from steelyard.rewards.own import refuse_unreachable
from steelyard.rewards.serving import refuse_in_worker, serve
from steelyard.rollout import Rollout


def row(completion="four", prompt="2 + 2?", **columns):
    return Rollout(7, prompt, completion, columns, (0, 0), 0, "r.jsonl:1")


def given(function, rollout=None):
    return reward(function)(rollout or row(), Context())


def plain(completion):
    return len(completion)


# --- what a function is given


def test_parameters_are_filled_by_name_in_any_order():
    def judge(answer, completion, prompt):
        return answer, completion, prompt

    assert given(judge, row(answer=4)) == (4, "four", "2 + 2?")


def test_the_whole_rollout_and_the_context_are_given_on_demand():
    def judge(context, rollout):
        return type(context), rollout.id

    assert given(judge) == (Context, 7)


def test_a_default_stands_where_the_column_is_absent_or_null():
    def judge(completion, tolerance=0.1):
        return tolerance

    assert given(judge) == 0.1
    assert given(judge, row(tolerance=None)) == 0.1
    assert given(judge, row(tolerance=0)) == 0


def test_only_parameters_without_a_default_are_needed_columns():
    def judge(rollout, prompt, completion, context, answer, *, strict, tolerance=0.1, **more):
        return 0.0

    assert reward(judge).columns == ("answer", "strict")


def test_open_ended_keywords_are_given_nothing_for_a_reward_says_what_it_reads():
    def judge(completion, **columns):
        return columns

    assert given(judge, row(answer=4)) == {}


def test_what_an_agent_left_behind_is_given():
    def judge(files, state):
        return files, state

    assert given(judge, row()._replace(files={"a": "x"}, state=[1])) == ({"a": "x"}, [1])
    assert reward(judge).columns == ()


@pytest.mark.parametrize("name", ["id", "group"])
def test_a_rows_name_is_no_column_and_a_function_that_asks_for_it_is_refused(name):
    function = eval(f"lambda completion, {name}: 0.0")  # noqa: S307 - its parameter has that name
    with pytest.raises(RefusedError, match=rf"(?s)the parameter {name} is a row's name.*next: drop it"):
        reward(function)


def test_open_ended_positions_are_refused():
    def judge(*values):
        return 0.0

    with pytest.raises(
        RefusedError, match=r"(?s)parameter \*values.*next: name plain parameters: rollout, prompt"
    ):
        reward(judge)


def test_a_conversations_texts_are_its_last_question_and_its_last_answer():
    asked = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "an example"},
        {"role": "user", "content": [{"type": "text", "text": "sec"}, {"type": "text", "text": "ond"}]},
    ]
    said = [{"role": "assistant", "content": "4"}, {"role": "tool", "content": "ok"}]

    def judge(prompt, completion):
        return prompt, completion

    assert given(judge, row(said, asked)) == ("second", "4")
    assert given(judge, row(said, [{"role": "system", "content": "x"}])) == ("", "4")


# --- what it becomes


def test_a_function_becomes_a_worker_reward_and_a_coroutine_function_an_awaited_one():
    async def waits(completion):
        return 1.0

    class Waits:
        async def __call__(self, completion):
            return 1.0

    assert (reward(plain).how, reward(plain).takes, reward(plain).name) == (
        How.WORKER,
        Takes.ROLLOUT,
        "plain",
    )
    assert reward(waits).how is How.ASYNC
    assert reward(functools.partial(waits)).how is How.ASYNC
    assert reward(Waits()).how is How.ASYNC


def test_the_decorator_takes_settings():
    @reward(name="short", floor=-1)
    def judge(completion):
        return 1.0

    assert isinstance(judge, FunctionReward)
    assert (judge.name, judge.floor) == ("short", -1.0)
    assert reward(judge.function).floor == 0.0


@pytest.mark.parametrize("floor", [float("nan"), float("inf"), None, "low", 1e300, Abstained("x")])
def test_a_floor_that_is_no_finite_number_is_refused(floor):
    with pytest.raises(RefusedError, match=r"(?s)reward 'plain'.*next: .*a finite number as its floor"):
        reward(name="plain", floor=floor)(plain)


def test_a_function_whose_parameters_cannot_be_seen_is_refused():
    with pytest.raises(RefusedError, match="parameters can be seen"):
        reward(type("Blind", (), {"__call__": dict.update, "__signature__": 3})())


def test_a_check_of_the_columns_says_what_is_wrong_and_one_that_raises_is_a_fault_of_the_columns():
    def fault(columns):
        return None if columns["answer"] > 0 else "not above 0"

    judge = reward(fault=fault)(plain)
    assert judge.lint({"answer": 1}) is None
    assert judge.lint({"answer": 0}) == "not above 0"
    assert "KeyError" in judge.lint({})
    assert "TypeError" in judge.lint({"answer": "x"})
    assert reward(plain).lint({}) is None


# --- its identity


def test_the_identity_changes_with_text_floor_check_defaults_and_captured_numbers():
    def above(threshold):
        def judge(completion, extra=1):
            return len(completion) > threshold

        return judge

    def other(completion, extra=1):
        return len(completion) > 1

    def with_default(value):
        def judge(completion, extra=value):
            return 1.0

        return judge

    kinds = [
        reward(name="x")(above(1)),
        reward(name="x")(above(2)),
        reward(name="x")(other),
        reward(name="x", floor=-1)(other),
        reward(name="x", fault=lambda columns: None)(other),
        reward(name="y")(other),
        reward(name="x")(with_default(1)),
        reward(name="x")(with_default(2)),
    ]
    assert len({kind.identity for kind in kinds}) == len(kinds)
    assert reward(name="x")(above(1)).identity == kinds[0].identity


def test_a_fingerprint_reads_no_address_so_that_it_is_the_same_in_the_next_process():
    class Judge:
        def method(self, completion):
            return 1.0

        def __call__(self, completion):
            return 1.0

    assert fingerprint(Judge()) == fingerprint(Judge())
    assert fingerprint(Judge().method) == fingerprint(Judge().method)
    assert fingerprint(Judge()) != fingerprint(Judge().method)
    assert fingerprint(functools.partial(plain, 1)) == fingerprint(functools.partial(plain, 1))
    assert fingerprint(functools.partial(plain, 1)) != fingerprint(functools.partial(plain, 2))
    assert fingerprint(functools.partial(plain, a=1)) != fingerprint(functools.partial(plain, a=2))


def test_a_fingerprint_of_a_function_without_a_text_is_its_code():
    def made(text):
        names = {}
        exec(text, names)  # noqa: S102 - as a notebook does
        return names["judge"]

    one, other = "def judge(c):\n    return 'a'", "def judge(c):\n    return 'b'"
    assert fingerprint(made(one)) == fingerprint(made(one))
    assert fingerprint(made(one)) != fingerprint(made(other))


# --- where it is found


def write(tmp_path, text, name="mine.py"):
    file = tmp_path / name
    file.write_text(text)
    return file


def test_a_reward_is_found_in_a_file_with_what_lies_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    write(tmp_path, "VALUE = 0.25\n", "lies_beside.py")
    file = write(tmp_path, "import lies_beside\ndef judge(completion):\n    return lies_beside.VALUE\n")
    found = named(f"{file}:judge")
    assert found(row(), Context()) == 0.25
    assert found.target == f"{file}:judge"
    assert named(f"{file}:judge").function is found.function


def test_a_decorated_reward_keeps_its_name_and_floor_when_it_is_found(tmp_path):
    file = write(
        tmp_path,
        "import steelyard\n@steelyard.reward(name='n', floor=-2)\ndef judge(completion):\n    return 1\n",
    )
    found = named(f"{file}:judge")
    assert (found.name, found.floor) == ("n", -2.0)


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("def judge(c): ...\nX = 3\n", "other", "there is no 'other' in .*next: name one of: judge"),
        ("def judge(c): ...\nX = 3\n", "X", "is int, not a function"),
        ("def judge(c): ...\nX = 3\n", "X.y", "there is no 'y'"),
        ("def judge(c) ...\n", "judge", "cannot be imported .*SyntaxError.*next: mend the file until python"),
        ("raise SystemExit(3)\n", "judge", "cannot be imported .SystemExit: 3"),
        ("import no_such_module_here\n", "judge", "cannot be imported .ModuleNotFoundError.*mend the file"),
    ],
)
def test_what_is_no_reward_in_a_file_is_refused_with_the_next_step(tmp_path, text, target, message):
    file = write(tmp_path, text)
    with pytest.raises(RefusedError, match=f"(?s){message}"):
        named(f"{file}:{target}")


def test_a_file_or_module_that_is_not_there_is_refused_with_the_next_step(tmp_path):
    with pytest.raises(RefusedError, match=r"(?s)there is no such file.*next: check the path"):
        named(f"{tmp_path}/nothing.py:judge")
    with pytest.raises(
        RefusedError, match=r"(?s)cannot be imported.*next: run from the folder that holds it"
    ):
        named("no_such_module_here:judge")


def test_a_file_that_failed_can_be_mended_and_found(tmp_path):
    file = write(tmp_path, "raise ValueError\n")
    with pytest.raises(RefusedError):
        named(f"{file}:judge")
    file.write_text("def judge(completion):\n    return 1.0  # mended\n")
    assert named(f"{file}:judge")(row(), Context()) == 1.0


def test_a_function_of_this_module_is_reachable():
    refuse_unreachable(reward(plain))


def test_a_lambda_is_refused_with_the_remedy():
    with pytest.raises(
        RefusedError, match=r"(?s)lambda.*next: define it at the top level of a module, or make it async"
    ):
        refuse_unreachable(reward(lambda completion: 1.0))


def test_a_function_typed_into_an_interpreter_is_refused(monkeypatch):
    monkeypatch.setattr(plain, "__module__", "__main__")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(RefusedError, match="interactive session"):
        refuse_unreachable(reward(plain))


# --- in a worker


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(serving, "_here", {"in_worker": False})


def asked_in_worker(target, rollouts):
    """What a worker process would say, having been sent what the parent packs."""
    parent = named(target)
    judge = serve((target, parent.source))
    if isinstance(rollouts, list):
        return judge((len(rollouts), parent.pack(rollouts)))
    return judge((1, parent.pack(rollouts)))


def test_a_worker_finds_the_reward_once_and_judges(worker, tmp_path):
    log = tmp_path / "log"
    file = write(
        tmp_path,
        f"with open({str(log)!r}, 'a') as f:\n    f.write('x')\n"
        "def judge(completion, answer):\n    return completion == answer\n",
    )
    parent = named(f"{file}:judge")
    judge = serve((f"{file}:judge", parent.source))
    assert judge((1, parent.pack(row("4", answer="4")))) == Scored(1.0)
    assert judge((1, parent.pack(row("5", answer="4")))) == Scored(0.0)
    assert log.read_text() == "x"


def test_a_worker_refuses_what_is_no_number(worker, tmp_path):
    file = write(tmp_path, "def judge(completion):\n    return None\n")
    with pytest.raises(ValueError, match="returned None, which is no number"):
        asked_in_worker(f"{file}:judge", row())


def test_a_worker_judges_several_at_once_and_says_which_value_was_none(worker, tmp_path):
    file = write(
        tmp_path,
        "def judge(completions, answer):\n"
        "    values = {'4': 1, '5': None, '6': float('nan'), '7': 'high'}\n"
        "    return [values[c] for c in completions]\n",
    )
    said = asked_in_worker(f"{file}:judge", [row(text, answer=1) for text in "4567"])
    assert said[:2] == [1.0, None]
    assert [failure.cause for failure in said[2:]] == [
        "returned nan; a reward is a finite number, at most 1e+100",
        "returned 'high', which is no number",
    ]


@pytest.mark.parametrize(
    ("returned", "why"),
    [("[1.0]", "returned 1 values for 2"), ("{1, 2}", "returned set"), ("1.0", "returned float")],
)
def test_a_list_of_another_length_or_kind_is_no_list_of_judgements(returned, why, worker, tmp_path):
    file = write(tmp_path, f"def judge(completions):\n    return {returned}\n")
    with pytest.raises(ValueError, match=why):
        asked_in_worker(f"{file}:judge", [row(), row()])


def test_a_run_that_is_started_in_a_worker_is_refused_with_the_guard_to_write(worker, tmp_path):
    refuse_in_worker("here")
    file = write(
        tmp_path,
        "from steelyard import Part, Recipe, Runtime, builtin\nRuntime(Recipe((Part(builtin('gsm8k')),)))\n"
        "def judge(completion):\n    return 1.0\n",
    )
    with pytest.raises(RefusedError, match=r'(?s)worker process.*if __name__ == "__main__":'):
        serve((f"{file}:judge", ""))


# --- several rollouts in one call


def test_a_trainers_function_is_given_lists_by_name_messages_as_they_came_and_the_other_columns():
    seen = {}

    def accuracy(prompts, completions, answer, log_metric, trainer_state=None, **kwargs):
        seen.update(kwargs, prompts=prompts, completions=completions, answer=answer, state=trainer_state)
        log_metric("solved", 1.0)
        return [1.0, 0.0]

    said = [{"role": "assistant", "content": "4"}]
    judge = reward(accuracy)
    assert judge([row(said, answer="4", level=1), row("5", answer="4")], Context()) == [1.0, 0.0]
    assert seen.pop("prompts") == ["", ""] or seen
    assert seen == {"completions": [said, "5"], "answer": ["4", "4"], "level": [1, None], "state": None}
    assert (judge.takes, judge.columns, judge.depends_on) == (Takes.GROUP, ("answer",), "group")


def test_a_column_that_no_row_has_keeps_the_default_of_a_function_of_several():
    def judge(completions, level="easy"):
        return [level]

    assert reward(judge)([row()], Context()) == ["easy"]
    assert reward(judge)([row(level="hard")], Context()) == [["hard"]]


def test_a_function_of_several_takes_a_group_or_whole_groups_in_a_batch():
    def judge(rollouts):
        return [0.0 for _ in rollouts]

    assert reward(judge).takes is Takes.GROUP
    assert reward(takes="batch")(judge).takes is Takes.BATCH
    with pytest.raises(RefusedError, match="say 'batch' or 'group'"):
        reward(takes="rollout")(judge)
    with pytest.raises(RefusedError, match="takes='batch' does not fit a function of one"):
        reward(takes="batch")(plain)


def test_a_function_that_asks_for_one_and_for_several_is_refused():
    with pytest.raises(RefusedError, match=r"for one rollout \(completion\) and for several \(prompts\)"):
        reward(lambda completion, prompts: 0.0)


def test_the_decorator_is_public():
    assert steelyard.reward is reward
    assert Path(home.__file__).name == "own.py"


def test_a_constant_or_a_helper_beside_a_function_is_part_of_its_identity(tmp_path):
    def identity(name, text):
        (tmp_path / name).write_text(text)
        return named(f"{tmp_path / name}:short").identity

    text = "LIMIT = {}\n\ndef short(completion):\n    return float(len(completion) < LIMIT)\n"
    assert identity("a.py", text.format(5)) == identity("b.py", text.format(5))
    assert identity("c.py", text.format(5)) != identity("d.py", text.format(5000))


@pytest.mark.parametrize(
    "parameters", ["completions, trainer_state", "data_source, solution_str, ground_truth"]
)
def test_another_frameworks_signature_is_called_by_its_name(parameters, tmp_path):
    (tmp_path / "theirs.py").write_text(f"def f({parameters}):\n    return 1.0\n")
    with pytest.raises(RefusedError, match=r"another framework's"):
        named(f"{tmp_path / 'theirs.py'}:f")
