"""A word explained to a child: a judge, a second model, says if it is right and simple.

Change the task's fields and the question, and write your rows beside it;
`gym-runtime test` says what is missing.
"""

from __future__ import annotations

from gym_runtime import (
    Environment,
    Model,
    Prompt,
    Reply,
    Task,
    UnusableAnswer,
    Verdict,
    quoted,
)

QUESTION = Prompt("""\
An explanation of the word "{word}" for a child:
{explanation}
Is it right, and would a child understand it?
Give your reasons, then write YES or NO on the last line.""")


class WordTask(Task):
    word: str


async def verify(task: WordTask, reply: Reply, judge: Model) -> Verdict:
    if not reply.text.strip():
        return Verdict(0.0)  # there is nothing to judge
    question = QUESTION.fill(word=task.word, explanation=quoted(reply.text))
    answer = await judge.ask(question)
    last_line = answer.text.strip().rpartition("\n")[2].strip(" .*")
    if last_line not in ("YES", "NO"):  # the judge's failure is no reward
        shown = last_line[:80]
        raise UnusableAnswer(f"the last line is {shown!r}, and neither YES nor NO")
    return Verdict(float(last_line == "YES"), fields={"judgement": last_line})


environment = Environment(
    resource=verify,
    roles=("judge",),
    agent="single_turn",
    description="Explain a word to a child.",
)
