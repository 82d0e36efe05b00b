"""Plays the histories of `epitome bench --peers` through one other condenser, and measures its turns.

    peers.py NAME FOLDER

FOLDER contains `plan.json` and `history.jsonl`; README.md describes them and the result. Output of a peer is redirected
to stderr, because stdout is for the result, one JSON object.
"""

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

PEERS = {"langchain": "with_langchain", "openhands": "with_openhands", "trpc-agent": "with_trpc_agent"}

# A threshold in tokens that is never reached.
NEVER = 1_000_000_000

# Messages of a turn: the question of the user, the tool call, its result, and the reply.
TURN = 4


class Clock:
    """Measures the time that a peer needs, without the time for adding messages."""

    def __init__(self):
        self.spent = 0.0

    def time(self, work):
        started = time.perf_counter()
        result = work()
        self.spent += time.perf_counter() - started
        return result

    def reset(self):
        spent, self.spent = self.spent, 0.0
        return spent * 1_000.0


def turn(peer, history, start, clock, write_list=lambda sent: None):
    """Plays the turn that begins at message `start`. Returns the milliseconds before the model calls and after the turn."""
    question, call, result, reply = history[start : start + TURN]
    peer.add(*question)
    write_list(clock.time(peer.before_call))
    peer.add(*call)
    peer.add(*result)
    write_list(clock.time(peer.before_call))
    peer.add(*reply)
    clock.time(peer.after_turn)
    return clock.reset()


def idle_turns(make, history, messages, plan):
    """Measures turns of a long list on which nothing is due. The first turn only warms up."""
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
        raise RuntimeError("a list was condensed although nothing was due")
    return {"messages": messages, "millis": millis}


def play_session(make, history, plan, lists=None):
    """Plays a session from its first message. Writes every list for the model to `lists`."""
    peer = make(plan["trigger"])
    clock, millis = Clock(), []

    def write_list(sent):
        if lists is not None:
            lists.write(json.dumps({"messages": peer.wire(sent)}) + "\n")

    for start in range(0, plan["session"], TURN):
        millis.append(turn(peer, history, start, clock, write_list))
    return {"millis": millis, "condensed": peer.condensed}


def median_session(make, history, plan, lists):
    """Plays the session several times within some seconds, and returns the median run."""
    until = time.monotonic() + plan["seconds"]
    sessions = [play_session(make, history, plan, lists)]
    while len(sessions) < plan["sessions"] and time.monotonic() < until:
        sessions.append(play_session(make, history, plan))
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
        session = median_session(make, history, plan, lists)
    turns = [idle_turns(make, history, messages, plan) for messages in plan["lengths"]]
    # The unit is kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1_024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    json.dump({"version": module.VERSION, "memory": memory, "turns": turns, "session": session}, answer)
    answer.close()


if __name__ == "__main__":
    main()
