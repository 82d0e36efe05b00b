"""Teaches schemathesis what JSON Schema cannot express: sizes in bytes, the syntax of triggers and strategies, times in the
future, fields that exclude each other.
"""

import os
import time
from datetime import datetime, timedelta, timezone

import schemathesis
from hypothesis import strategies as st

plain = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])


def text(least, most):
    return st.text(plain, min_size=least, max_size=most).filter(lambda text: len(text.encode()) <= most)


names = text(1, 512)
count = st.integers(1, 1000)
counted = st.builds("{}({})".format, st.sampled_from(["messages", "turns", "tokens", "chars"]), count)


def rfc3339(moment):
    """A time in any of the forms of RFC 3339 that clients write."""
    zones = st.sampled_from([0, 60, -210, 345]).map(lambda minutes: timezone(timedelta(minutes=minutes)))
    forms = st.sampled_from(["auto", "seconds", "milliseconds"])
    return st.builds(lambda time, zone, form: time.replace(tzinfo=zone).isoformat(timespec=form), moment, zones, forms)


past = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1))
future = st.datetimes(datetime(2090, 1, 1), datetime(2100, 1, 1))

for name, strategy in {
    "date-time": rfc3339(past),
    "instant": rfc3339(past) | past.map(lambda time: time.date().isoformat()) | st.integers(0, 2**42).map(str),
    "expiry": rfc3339(future) | st.sampled_from(["12h", "30d", "52w", "2099-12-31"]),
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


# The key that sends the requests. It must not revoke itself. Its form is `epk_ID_SECRET`.
OWN_KEY = os.environ.get("CHECK_SCHEMA_KEY", "__").split("_")[1]


def bounds(body):
    """Whether a body sets a limit that applies to later requests."""
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
    # A limit set here would change which later requests are valid, even if the rest of this request is refused.
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
    # The `format` must be that of the body.
    if case.path == "/v1/condense" and query.get("format") is not None:
        return False
    # The largest budget is a setting.
    if isinstance(query.get("tokens"), int) and query["tokens"] > 100_000:
        return False
    settings = body.get("settings") or {}
    # Slots of one scope have different names; a slot without a name has the name of its preset.
    slots = [(slot.get("name") or slot.get("preset"), slot.get("scope")) for slot in settings.get("slot") or []]
    if len(set(slots)) < len(slots):
        return False
    # A message has one time.
    if any("at" in message and "created_at" in message for message in messages(case.body)):
        return False
    # A key expires in the future.
    expires = body.get("expires")
    return not isinstance(expires, (int, float)) or expires > time.time() * 1000 + 60_000


def messages(body):
    """The messages in the body of an append."""
    if isinstance(body, dict) and isinstance(body.get("messages"), list):
        body = body["messages"]
    body = body if isinstance(body, list) else [body]
    return [message for message in body if isinstance(message, dict)]


@schemathesis.hook
def map_case(ctx, case):
    """Writes whole numbers without a decimal point."""
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
