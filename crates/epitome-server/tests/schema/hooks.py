"""What JSON Schema cannot say: sizes in bytes, small languages, moments to come, what excludes each other."""

import os
import time

import schemathesis
from hypothesis import strategies as st

plain = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])


def text(least, most):
    return st.text(plain, min_size=least, max_size=most).filter(lambda text: len(text.encode()) <= most)


names = text(1, 512)
count = st.integers(1, 1000)
counted = st.builds("{}({})".format, st.sampled_from(["messages", "turns", "tokens", "chars"]), count)

for name, strategy in {
    "name": names,
    "label": text(0, 200),
    "place": st.builds("{}.{}".format, count, names),
    "words": st.lists(st.sampled_from(["parcel", "Oslo", '"two words"', "ünï", "%", "日本"]), min_size=1).map(" ".join),
    "model": st.sampled_from(["local", "second", "third"]),
    "time": st.sampled_from(["0", "500ms", "30s", "10m", "2h"]),
    "time-or-never": st.sampled_from(["0", "500ms", "never"]),
    "template": st.just("Sum up {conversation_text}, {max_words} words."),
    "keep": st.builds("{}({})".format, st.sampled_from(["messages", "turns"]), count),
    "strategy": st.sampled_from(["noop", "recent", "amortized(turns(2))", "pipeline(mask, summarize)"]),
    "trigger": counted | st.builds("any({}, {})".format, counted, counted),
}.items():
    schemathesis.openapi.format(name, strategy)


# The key all this is asked with, which it must not revoke: `epk_ID_SECRET`.
OWN_KEY = os.environ.get("CHECK_SCHEMA_KEY", "__").split("_")[1]


def bounds(body):
    """Whether a body sets a number that others are held to."""
    settings = body.get("settings") if isinstance(body, dict) else None
    settings = settings if isinstance(settings, dict) else {}
    limits, context = settings.get("limits"), settings.get("context")
    numbers = list(limits.values()) if isinstance(limits, dict) else []
    numbers += [context.get("max_tokens")] if isinstance(context, dict) else []
    return any(isinstance(number, (int, float)) for number in numbers)


@schemathesis.hook
def filter_case(ctx, case):
    if OWN_KEY and (case.path_parameters or {}).get("key") == OWN_KEY:
        return False
    # What is set here decides what is right later, also where something else in the request is wrong.
    if bounds(case.body):
        return False
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return True
    query = case.query if isinstance(case.query, dict) else {}
    body = case.body if isinstance(case.body, dict) else {}
    # Refused together.
    if query.get("fill") and query.get("steady"):
        return False
    if sum(query.get(f"keep_{unit}") is not None for unit in ("messages", "turns", "tokens")) > 1:
        return False
    # A form that is named must be the body's own.
    if case.path == "/v1/condense" and query.get("format") is not None:
        return False
    # How large a context may be is a setting.
    if isinstance(query.get("tokens"), int) and query["tokens"] > 100_000:
        return False
    settings = body.get("settings") or {}
    # No two slots of a scope have the same name, and one without a name has its preset's.
    slots = [(slot.get("name") or slot.get("preset"), slot.get("scope")) for slot in settings.get("slot") or []]
    if len(set(slots)) < len(slots):
        return False
    # A key's end is a moment to come.
    expires = body.get("expires")
    return expires is None or expires > time.time() * 1000 + 60_000


@schemathesis.hook
def map_case(ctx, case):
    """A whole number is written without a point."""
    if isinstance(case.body, (dict, list)):
        case.body = whole(case.body)
    return case


def whole(value):
    if isinstance(value, dict):
        return {key: whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
