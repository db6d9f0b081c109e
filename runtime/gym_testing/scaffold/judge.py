"""A word explained to a child: a second model, the judge, says whether the explanation is right and simple.

Change the task's fields and the question, write your rows beside it; `gym-runtime test` says what is missing.
"""

from __future__ import annotations

from gym_runtime import Environment, Model, Prompt, Reply, Task, UnusableAnswer, Verdict, quoted

QUESTION = Prompt("""\
An explanation of the word "{word}" for a child:
{explanation}
Is it right, and would a child understand it? Give your reasons, then write YES or NO on the last line.""")


class WordTask(Task):
    word: str


async def verify(task: WordTask, reply: Reply, judge: Model) -> Verdict:
    if not reply.text.strip():
        return Verdict(0.0)  # there is nothing to judge
    answer = await judge.ask(QUESTION.fill(word=task.word, explanation=quoted(reply.text)))
    last_line = answer.text.strip().rpartition("\n")[2].strip(" .*")
    if last_line not in ("YES", "NO"):  # the judge's failure is no reward
        raise UnusableAnswer(f"the judge's last line is {last_line[:80]!r}, and neither YES nor NO")
    return Verdict(float(last_line == "YES"), fields={"judgement": last_line})


environment = Environment(
    resource=verify, roles=("judge",), agent="single_turn", description="Explain a word to a child."
)
