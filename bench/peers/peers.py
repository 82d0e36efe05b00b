"""Plays the histories of `epitome bench --peers` through one other condenser, and says how long its turns took.

    peers.py NAME FOLDER

FOLDER holds `plan.json` and `history.jsonl`; README.md says what is in them and what is answered. What a peer prints
goes to stderr: stdout is for the answer, one JSON object.
"""

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

PEERS = {"langchain": "with_langchain", "openhands": "with_openhands", "trpc-agent": "with_trpc_agent"}

# No threshold of a list that is only looked at.
NEVER = 1_000_000_000

# A turn: the user asks, the model calls a tool, gets its result, and answers.
TURN = 4


class Clock:
    """What a peer spent, without what it took to hand it its messages."""

    def __init__(self):
        self.spent = 0.0

    def time(self, work):
        started = time.perf_counter()
        result = work()
        self.spent += time.perf_counter() - started
        return result

    def taken(self):
        spent, self.spent = self.spent, 0.0
        return spent * 1_000.0


def turn(peer, history, start, clock, show=lambda handed: None):
    """One turn from the `start`th message on: what the peer does before each call of the model, and after the turn."""
    asked, called, result, answered = history[start : start + TURN]
    peer.add(*asked)
    show(clock.time(peer.before_call))
    peer.add(*called)
    peer.add(*result)
    show(clock.time(peer.before_call))
    peer.add(*answered)
    clock.time(peer.after_turn)
    return clock.taken()


def looked_at(make, history, messages, plan):
    """Turns of a long list on which nothing is due, after one that is not measured."""
    peer = make(NEVER)
    for message in history[:messages]:
        peer.add(*message)
    clock, millis = Clock(), []
    turn(peer, history, messages, clock)
    until = time.monotonic() + plan["seconds"]
    for number in range(1, plan["turns"] + 1):
        millis.append(turn(peer, history, messages + number * TURN, clock))
        if time.monotonic() > until and number >= plan["fewest"]:
            break
    if peer.condensed:
        raise RuntimeError("a list was condensed that nothing was due of")
    return {"messages": messages, "millis": millis}


def played(make, history, plan, lists=None):
    """A session from its first message on; every list that the model would be sent is written down."""
    peer = make(plan["trigger"])
    clock, millis = Clock(), []

    def show(handed):
        if lists is not None:
            lists.write(json.dumps({"messages": peer.wire(handed)}) + "\n")

    for start in range(0, plan["session"], TURN):
        millis.append(turn(peer, history, start, clock, show))
    return {"millis": millis, "condensed": peer.condensed}


def played_often(make, history, plan, lists):
    """The session some times, as long as that is a matter of seconds; the one in the middle counts."""
    until = time.monotonic() + plan["seconds"]
    sessions = [played(make, history, plan, lists)]
    while len(sessions) < plan["sessions"] and time.monotonic() < until:
        sessions.append(played(make, history, plan))
    return sorted(sessions, key=lambda session: sum(session["millis"]))[len(sessions) // 2]


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    plan = json.loads((folder / "plan.json").read_text())
    with open(folder / "history.jsonl") as lines:
        history = [(line["message"], line["tokens"]) for line in map(json.loads, lines)]
    module = importlib.import_module(PEERS[name])

    def make(trigger):
        return module.Peer(trigger, plan["keep"], plan["summary"])

    with open(folder / "lists.jsonl", "w") as lists:
        session = played_often(make, history, plan, lists)
    turns = [looked_at(make, history, messages, plan) for messages in plan["lengths"]]
    # Kilobytes on Linux, bytes on a Mac.
    unit = 1 if sys.platform == "darwin" else 1_024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    json.dump({"version": module.VERSION, "memory": memory, "turns": turns, "session": session}, answer)
    answer.close()


if __name__ == "__main__":
    main()
