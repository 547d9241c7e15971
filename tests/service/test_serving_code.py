"""`steelyard serve` of a recipe that runs code: the same verdicts, and nothing left when it ends."""

import pytest
from serving import served

from boundaries import JUDGED, RIGHT, SNIPPET, WRONG
from steelyard.sandbox.processes import tree

pytestmark = [pytest.mark.needs("bubblewrap", "web")]

pytest.importorskip("httpx")


def test_posted_code_is_judged_behind_the_boundary_again_and_again(tmp_path):
    with served(tmp_path, "tests", code={"boundary": "bubblewrap", "cpu_s": 0.4}) as server:
        for tests in (SNIPPET, JUDGED):
            rows = [
                {"prompt": "?", "completion": code, "tests": tests}
                for code in (RIGHT, WRONG, "while True: pass")
            ]
            answer = server.score(*rows)
            assert answer.status_code == 200, answer.text
            said = answer.json()["rows"]
            assert [(row["value"], row.get("code")) for row in said] == [
                (1.0, None),
                (0.0, "wrong_answer"),
                (0.0, "cpu"),
            ]
            assert {row["integrity"] for row in said} == {"isolated"}
        slots = [pid for pid in tree(server.pid) if pid != server.pid]
        assert slots
        reloaded = server.reload()
        assert reloaded.status_code == 200, reloaded.text + server.said()
        assert server.values({"prompt": "?", "completion": RIGHT, "tests": SNIPPET}) == [1.0]
