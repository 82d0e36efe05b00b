"""What JSON Schema cannot say: sizes in bytes, small languages, moments to come."""

import time

import schemathesis
from hypothesis import strategies as st

plain = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])


def fits(most):
    return lambda text: len(text.encode()) <= most


names = st.text(plain, min_size=1, max_size=512).filter(fits(512))
schemathesis.openapi.format("name", names)
schemathesis.openapi.format("label", st.text(plain, max_size=200).filter(fits(200)))
schemathesis.openapi.format("model", st.just("local"))
schemathesis.openapi.format("time", st.sampled_from(["0", "500ms", "30s", "10m", "2h", "never"]))
schemathesis.openapi.format("template", st.just("Sum up {conversation_text}, {max_words} words."))
count = st.integers(1, 1000)
simple = st.builds("{}({})".format, st.sampled_from(["messages", "turns", "tokens", "chars"]), count)
schemathesis.openapi.format("keep", st.builds("{}({})".format, st.sampled_from(["messages", "turns"]), count))
schemathesis.openapi.format("trigger", simple | st.builds("any({}, {})".format, simple, simple))


@schemathesis.hook
def filter_body(ctx, body):
    """A key's end is a moment to come."""
    if isinstance(body, dict) and isinstance(body.get("expires"), int):
        return body["expires"] > time.time() * 1000 + 60_000
    return True
