"""The work of the three agents: a task, tools with invented output, and the number of steps."""
import json

SYSTEM = "You are a careful engineer. Use your tools, and say what you did when a step is done."
TASK = (
    "Port the harbour's billing from floats to whole øre. Begin with src/fees/winter.rs and src/fees/guests.rs, whose"
    " totals are off by 0.01 in ticket HB-2214. A rule for all of this work: never edit migrations/0007_berths.sql."
)
RECALL = "Recall what this was all about."

TOOLS = [
    ("list_files", "All files."),
    ("read_file", "A file's lines."),
    ("grep", "Lines that match a pattern."),
    ("edit_file", "Replaces a text in a file."),
    ("run_tests", "Runs the tests whose names contain a word."),
]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def run(name, arguments):
    """Returns a tool's output. There are no files; their content is invented."""
    n = 7
    for byte in json.dumps(arguments, sort_keys=True).encode():
        n = (n * 31 + byte) % 9973
    if name == "list_files":
        return "".join(f"src/berth_{at}.rs  {900 + at * 37} bytes\n" for at in range(60))
    if name == "grep":
        return "".join(f"src/tide_{at}.rs:{n % 80 + at}: let fee_{n} = berth.fee(night)?;\n" for at in range(30))
    if name == "edit_file":
        return f"1 line of {arguments.get('path')} changed"
    if name == "run_tests":
        ran = "".join(f"test fees::adds_up_{n + at} ... ok\n" for at in range(40))
        return f"{ran}test result: ok. 40 passed; 0 failed; finished in 0.{n}s\n"
    lines = range(n % 300, n % 300 + 45)
    return "".join(f"{at:>4}  let total_{at} = nights.iter().map(|night| rate.of(night, {n})).sum::<Øre>();\n" for at in lines)


def user_messages(size):
    """Yields the user messages, one after the other, until the history has this number of bytes."""
    yield TASK
    step = 1
    while size() < LIMIT:
        step += 1
        yield f"Good. Continue with step {step}."
    yield RECALL


# Ten times what the model reads: 16,000 tokens, as it counts three bytes each.
LIMIT = 10 * 16_000 * 3


def size_of(history):
    return len(json.dumps(history, ensure_ascii=False, default=lambda item: item.model_dump()).encode())


def tell(calls, history, answer):
    """What the test reads."""
    print(json.dumps({"calls": calls, "bytes": size_of(history), "answer": answer}, ensure_ascii=False))
